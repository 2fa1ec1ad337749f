"""What metrics requests mean, with the native part and without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_metrics import MetricDecoder

WAYS = [
    "plain",
    pytest.param(
        "native",
        marks=pytest.mark.skipif(
            NATIVE is None, reason="no extension module; it would show that C++ does the same"
        ),
    ),
]


@pytest.fixture(params=WAYS)
def decoder(request: pytest.FixtureRequest) -> MetricDecoder:
    """One that reads with the native part, and one without."""
    return MetricDecoder(extension=NATIVE if request.param == "native" else None)


def request(**resource: Any) -> ExportMetricsServiceRequest:
    """Of rank 3 of four."""
    message = ExportMetricsServiceRequest()
    of_resource = message.resource_metrics.add()
    printed = {"training.rank": 3, "training.world_size": 4, "service.name": "job", **resource}
    for key, value in printed.items():
        _put(of_resource.resource, key, value)
    of_resource.scope_metrics.add()
    return message


def add(
    message: Any,
    metric: semconv.Metric,
    value: float | None,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """A point of a metric."""
    metrics = message.resource_metrics[-1].scope_metrics[-1].metrics
    point = metrics.add(name=metric.name).gauge.data_points.add()
    if isinstance(value, int):
        point.as_int = value
    elif value is not None:
        point.as_double = value
    for key, one in (attributes or {}).items():
        _put(point, key, one)


def _put(message: Any, key: str, value: Any) -> None:
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    pair = message.attributes.add(key=key)
    if value is not None:
        setattr(pair.value, kinds[type(value)], value)


class TestMetrics:
    """The same facts of both ways."""

    def test_points_of_one_rank_make_one_heartbeat(self, decoder: MetricDecoder) -> None:
        """Whatever their order, over scopes."""
        message = request()
        add(message, semconv.SECTION_OPEN, 0.5, {semconv.SECTION: "forward"})
        add(message, semconv.HEARTBEAT, 10.5)
        message.resource_metrics[0].scope_metrics.add()
        add(message, semconv.PROGRESS, 9.5, {semconv.PHASE: "eval"})
        add(message, semconv.PROGRESS_STEP, 7.0)
        add(message, semconv.RANK_FINISHED, 11, {semconv.OUTCOME: "failed"})
        add(message, semconv.RECORDS_DROPPED, 2, {semconv.REASON: "ring_full"})
        add(message, semconv.RECORDS_FOLDED, 5, {semconv.SECTION: "forward"})
        (beat,) = decoder.decode(message.SerializeToString()).heartbeats
        assert (beat.sent_at_s, beat.progress_at_s, beat.step) == (10.5, 9.5, 7)
        assert (beat.open_section, beat.open_time_s, beat.phase) == ("forward", 0.5, "eval")
        assert (beat.finished_at_s, beat.outcome) == (11, "failed")
        assert (beat.dropped, beat.folded) == ({"ring_full": 2}, {"forward": 5})
        assert (beat.source.rank, beat.source.world_size) == (3, 4)

    def test_a_rank_is_described_by_its_info(self, decoder: MetricDecoder) -> None:
        """Role and place in the layout come on top of the resource, and win."""
        message = request(**{"training.role": "none yet"})
        add(message, semconv.RANK_INFO, 1, {"training.role": "actor", "rank": "3"})
        (beat,) = decoder.decode(message.SerializeToString()).heartbeats
        assert (beat.source.role, beat.source.rank) == ("actor", 3)

    def test_what_times_a_rank_may_change_while_it_lives(self, decoder: MetricDecoder) -> None:
        """The rank is the same; a tier that nobody knows is none."""
        reported = []
        for tier, reason in (("off", "no_torch"), ("cupti", ""), ("off", "takeover"), ("x", "y")):
            message = request()
            info = {semconv.GPU_TIMING_TIER: tier, semconv.GPU_TIMING_REASON: reason}
            add(message, semconv.RANK_INFO, 1, {k: v for k, v in info.items() if v})
            (beat,) = decoder.decode(message.SerializeToString()).heartbeats
            reported.append((beat.gpu_tier, beat.gpu_reason, beat.source.rank))
        assert reported == [
            ("off", "no_torch", 3),
            ("cupti", "", 3),
            ("off", "takeover", 3),
            ("", "", 3),
        ]

    @pytest.mark.parametrize(
        ("page", "read"),
        [(False, False), (True, True), ("false", False), ("0", False), ("1", True), (0, False)],
    )
    def test_who_is_called_for_a_run_may_be_told_on_the_resource(
        self, decoder: MetricDecoder, page: Any, read: bool
    ) -> None:
        """As a truth, or as the text that ``OTEL_RESOURCE_ATTRIBUTES`` makes of it."""
        message = request(**{str(semconv.RUN_PAGE): page, str(semconv.TEAM): "vision"})
        add(message, semconv.HEARTBEAT, 1.0)
        (beat,) = decoder.decode(message.SerializeToString()).heartbeats
        assert (beat.page, beat.team, beat.is_ending) == (read, "vision", False)

    def test_what_makes_no_sense_of_a_page_is_not_told(self, decoder: MetricDecoder) -> None:
        """Nor is what is absent."""
        for values in ({}, {str(semconv.RUN_PAGE): "maybe"}, {str(semconv.RUN_PAGE): 2.5}):
            message = request(**values)
            add(message, semconv.HEARTBEAT, 1.0)
            (beat,) = decoder.decode(message.SerializeToString()).heartbeats
            assert (beat.page, beat.team) == (None, "")

    def test_a_rank_that_is_told_to_end_says_so(self, decoder: MetricDecoder) -> None:
        """With its description, from one heartbeat to the next."""
        reported = []
        for info in ({}, {semconv.RANK_ENDING: True}, {}):
            message = request(**{str(semconv.RUN_PAGE): True})
            add(message, semconv.RANK_INFO, 1, {semconv.RUN_PAGE: False, **info})
            (beat,) = decoder.decode(message.SerializeToString()).heartbeats
            reported.append((beat.is_ending, beat.page))
        assert reported == [(False, False), (True, False), (False, False)]

    def test_what_the_resource_says_of_two_ranks_is_kept_apart(
        self, decoder: MetricDecoder
    ) -> None:
        """One request of a gateway, with many resources."""
        message = request()
        add(message, semconv.HEARTBEAT, 1.0)
        message.MergeFrom(request(**{"training.rank": 2}))
        add(message, semconv.HEARTBEAT, 2.0)
        beats = decoder.decode(message.SerializeToString()).heartbeats
        assert [(beat.source.rank, beat.sent_at_s) for beat in beats] == [(3, 1.0), (2, 2.0)]

    @pytest.mark.parametrize("first", [True, 1])
    def test_true_is_no_rank_though_1_is_one(self, decoder: MetricDecoder, first: Any) -> None:
        """Whichever comes first."""
        ranks = {}
        for value in (first, 1, True):
            message = request()
            add(message, semconv.HEARTBEAT, 1.0, {"training.rank": value})
            decoded = decoder.decode(message.SerializeToString())
            ranks[type(value)] = [beat.source.rank for beat in decoded.heartbeats]
            assert decoded.rejected == ({"bad_rank": 1} if value is True else {})
        assert ranks == {int: [1], bool: []}

    @pytest.mark.parametrize("value", [None, math.nan, math.inf, -1, -0.5, 2**62 + 1])
    def test_a_number_that_makes_no_sense_is_no_heartbeat(
        self, decoder: MetricDecoder, value: float | None
    ) -> None:
        """It is counted as unknown."""
        message = request()
        add(message, semconv.PROGRESS_STEP, value)
        decoded = decoder.decode(message.SerializeToString())
        assert decoded.heartbeats == ()
        assert decoded.points["unknown"] == 1

    @pytest.mark.parametrize(
        ("value", "name"),
        [("", "unknown"), (None, "unknown"), (7, "7"), (True, "True"), (0.5, "0.5"), (0, "unknown"),
         ("x" * 300, "x" * 256), ("é" * 300, "é" * 256)],
    )  # fmt: skip
    def test_a_count_has_a_name_whatever_is_told(
        self, decoder: MetricDecoder, value: Any, name: str
    ) -> None:
        """Of at most 256 characters."""
        message = request()
        add(message, semconv.RECORDS_DROPPED, 2, {semconv.REASON: value})
        (beat,) = decoder.decode(message.SerializeToString()).heartbeats
        assert beat.dropped == {name: 2}

    def test_counts_are_told_apart_by_what_was_told(self, decoder: MetricDecoder) -> None:
        """True is another name than 1, whatever was seen before."""
        result = []
        for value in (True, 1, True):
            message = request()
            add(message, semconv.RECORDS_DROPPED, 2, {semconv.REASON: value})
            (beat,) = decoder.decode(message.SerializeToString()).heartbeats
            result += beat.dropped
        assert result == ["True", "1", "True"]

    def test_a_text_that_is_none_is_not_taken(self, decoder: MetricDecoder) -> None:
        """A number is no section, and an outcome that nobody knows is "unknown"."""
        message = request()
        add(message, semconv.SECTION_OPEN, 0.5, {semconv.SECTION: 7})
        add(message, semconv.RANK_FINISHED, 1.0, {semconv.OUTCOME: "strange"})
        (beat,) = decoder.decode(message.SerializeToString()).heartbeats
        assert (beat.open_section, beat.outcome) == ("", "unknown")

    def test_metrics_of_others_and_in_another_kind_of_data_are_unknown(
        self, decoder: MetricDecoder
    ) -> None:
        """Counted point by point."""
        message = request()
        add(message, semconv.GPU_RELATIVE, 1)
        metrics = message.resource_metrics[0].scope_metrics[0].metrics
        histogram = metrics.add(name=semconv.HEARTBEAT.name).histogram
        for _ in range(3):
            histogram.data_points.add(count=1)
        metrics.add(name=semconv.HEARTBEAT.name)
        decoded = decoder.decode(message.SerializeToString())
        assert {use: n for use, n in decoded.points.items() if n} == {"unknown": 4}

    def test_what_is_no_request_is_refused(self, decoder: MetricDecoder) -> None:
        """With the name of what was expected."""
        for body in (b"\xff", b"\x0a\x05", request().SerializeToString()[:-1]):
            with pytest.raises(InputError, match="ExportMetricsServiceRequest"):
                decoder.decode(body)
