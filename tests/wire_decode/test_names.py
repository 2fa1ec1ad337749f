"""Names from outside are safe to show: cleaned where they are decoded, by both ways of reading."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import native, semconv
from otel_straggler.model.flight_json import read_flight_record
from otel_straggler.model.names import MAX_NAME, clean_name
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder

NASTY = "a\x1b[2J\u202e<!channel>\n\u200b"
CLEAN = "a�[2J�\u2039!channel>��"
EXTENSIONS = [None, native.NATIVE] if native.NATIVE else [None]


def attribute(pairs: Any, key: str, value: str | int) -> None:
    pair = pairs.add(key=key)
    if isinstance(value, int):
        pair.value.int_value = value
    else:
        pair.value.string_value = value


def describe(resource: Any) -> None:
    for key in (
        semconv.RUN_ID, semconv.SERVICE_NAME, semconv.GROUP, semconv.HOST_NAME,
        semconv.SESSION_ID, semconv.ROLE, semconv.GPU_UUID, semconv.GPU_MODEL, semconv.TEAM,
    ):  # fmt: skip
        attribute(resource.attributes, key, NASTY)
    attribute(resource.attributes, semconv.RANK, 0)


@pytest.mark.parametrize("extension", EXTENSIONS, ids=["protobuf", "native"][: len(EXTENSIONS)])
def test_every_name_of_a_span_is_clean(extension: ModuleType | None) -> None:
    """Run, job, group, host, session, role, device, section, and parent."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    describe(of_resource.resource)
    span = of_resource.scope_spans.add().spans.add(
        trace_id=b"t" * 16, span_id=b"s" * 8, name=NASTY, start_time_unix_nano=1,
        end_time_unix_nano=2,
    )  # fmt: skip
    for key in (semconv.SECTION, semconv.SECTION_PARENT):
        attribute(span.attributes, key, NASTY)
    decoded = SpanDecoder(extension=extension).decode(request.SerializeToString())
    [source], [section] = decoded.batch.sources, decoded.batch.sections
    texts = (
        source.run_id, source.job, source.group, source.node, source.session_id, source.role,
        source.device, source.device_model,
    )  # fmt: skip
    assert set(texts) == {CLEAN}
    assert (section.name, section.parent) == (CLEAN, CLEAN)


@pytest.mark.parametrize("extension", EXTENSIONS, ids=["protobuf", "native"][: len(EXTENSIONS)])
def test_every_name_of_a_heartbeat_is_clean(extension: ModuleType | None) -> None:
    """Open section, phase, team, and the reasons of losses."""
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    describe(of_resource.resource)
    metrics = of_resource.scope_metrics.add().metrics
    point = metrics.add(name=semconv.SECTION_OPEN.name).gauge.data_points.add(as_double=1.0)
    attribute(point.attributes, semconv.SECTION, NASTY)
    attribute(point.attributes, semconv.PHASE, NASTY)
    dropped = metrics.add(name=semconv.RECORDS_DROPPED.name).sum.data_points.add(as_int=1)
    attribute(dropped.attributes, semconv.REASON, NASTY)
    decoded = MetricDecoder(extension=extension).decode(request.SerializeToString())
    [beat] = decoded.heartbeats
    assert (beat.open_section, beat.phase, beat.team) == (CLEAN, CLEAN, CLEAN)
    assert list(beat.dropped) == [CLEAN]


def test_names_in_a_flight_record_are_clean() -> None:
    """They stand in the sentence about a hang."""
    record = read_flight_record(
        {
            "version": 1,
            "groups": [
                {"name": "0", "description": NASTY, "backend": "nccl", "ranks": [[0, 1, 1]],
                 "enqueued": 1, "completed": 0}
            ],
            "calls": [],
            "ignored": {},
        },
        0,
    )  # fmt: skip
    [group] = record.groups
    assert "<!" not in group.description
    assert group.description.isprintable()


@given(st.text(max_size=2 * MAX_NAME))
def test_a_clean_name_is_printable_bounded_and_stays_clean(name: str) -> None:
    """Cleaning it again changes nothing, so a name has one form."""
    clean = clean_name(name)
    assert len(clean) <= MAX_NAME
    assert all(c.isprintable() or c.isspace() for c in clean)
    assert not {"\n", "\r", "\u2028", "\u2029", "\u202e"} & set(clean)
    assert clean_name(clean) == clean


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("<!channel>", "\u2039!channel>"),
        ("<@U123> <#C1>", "\u2039@U123> \u2039#C1>"),
        ("<https://x.example|run 7>", "\u2039https://x.example|run 7>"),
        ("[run 7](https://x.example)", "[run 7] (https://x.example)"),
        ("@here @channel @hereby", "\uff20here \uff20channel @hereby"),
    ],
)
def test_a_name_calls_nobody_and_hides_no_link(name: str, clean: str) -> None:
    """In Slack, and in chats that read Markdown."""
    assert clean_name(name) == clean


@pytest.mark.parametrize(
    "name", ["forward", "eval/forward", "<other>", "a<b>", "模型 1", "s3://bucket/run", "me@site"]
)
def test_an_ordinary_name_stays_as_it_is(name: str) -> None:
    """Also where it has brackets, or other letters."""
    assert clean_name(name) == name
