"""Spans of NeMo Lens and of dd-trace are scored as they come, from a file and live."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler.cli.score import command as score
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.span_rules import SpanNames
from otel_straggler.simulate.writers import as_json_line

from .foreign import DATADOG_SPANS, LENS_SPANS, RANKS, SLOW, SLOWDOWN, datadog, lens

SETS: dict[str, tuple[Callable[[], bytes], str, set[str]]] = {
    "NeMo Lens": (lens, "4711", {"megatron.forward_backward"}),
    "NeMo Lens, rank as text": (lambda: lens(str), "4711", {"megatron.forward_backward"}),
    "NeMo Lens, first release": (lambda: lens(int, "dl"), "4711", {"megatron.forward_backward"}),
    "dd-trace": (datadog, "raysubmit_1", {"pytorch.forward", "pytorch.backward"}),
}
every_set = pytest.mark.parametrize("name", SETS)


def check(window: dict[str, Any], slow_sections: set[str]) -> None:
    """Rank 2 is listed for its work; who waits for it, and what all do alike, is not."""
    listed = {(s["rank"], s["section"]) for s in window["stragglers"]}
    assert listed == {(SLOW, section) for section in slow_sections}
    for section in slow_sections:
        scores = window["section_relative_scores"][section]
        assert scores[str(SLOW)] == pytest.approx(1 / SLOWDOWN)
        assert set(scores) == {str(rank) for rank in range(RANKS)}
    assert window["missing_ranks"] == []


@every_set
def test_a_recorded_file_lists_the_slow_rank_and_its_section(name: str, tmp_path: Path) -> None:
    """``otel-straggler score`` needs no setting for them."""
    build, run_id, slow_sections = SETS[name]
    file = tmp_path / "x.json"
    file.write_text(as_json_line(build()))
    result = CliRunner().invoke(score, [str(file), "--json"])
    assert result.exit_code == 0, result.output
    [window] = json.loads(result.stdout)["runs"][run_id]["windows"]
    check(window, slow_sections)


def test_a_recorded_file_is_read_by_the_settings_of_the_collector(tmp_path: Path) -> None:
    """``--config`` names attributes and patterns for both."""
    file, config = tmp_path / "x.json", tmp_path / "c.yaml"
    file.write_text(as_json_line(lens(int, "mpi")))
    bare = CliRunner().invoke(score, [str(file)])
    assert bare.exit_code != 0
    config.write_text("attributes: {rank: [mpi.rank]}\nspans: {include: [megatron.forward*]}\n")
    result = CliRunner().invoke(score, [str(file), "--json", "--config", str(config)])
    assert result.exit_code == 0, result.output
    [window] = json.loads(result.stdout)["runs"]["4711"]["windows"]
    assert set(window["sections"]) == {"megatron.forward_backward"}
    check(window, {"megatron.forward_backward"})


@every_set
def test_a_live_collector_lists_the_slow_rank_and_its_section(
    start: Callable[..., Any], kit: Any, name: str
) -> None:
    """In windows by time, because most of these spans have no step."""
    build, run_id, slow_sections = SETS[name]
    live = start(scoring__window_s=6.0)
    assert live.post(build()).status == 200
    window = kit.eventually(lambda: work_windows(live, run_id, slow_sections))[-1]
    check(window, slow_sections)


def work_windows(live: Any, run_id: str, sections: set[str]) -> list[dict[str, Any]]:
    """Those with work in them."""
    return [w for w in live.windows(run_id) if sections <= set(w["section_relative_scores"])]


@pytest.mark.parametrize(("body", "outcomes"), [(lens(), LENS_SPANS), (datadog(), DATADOG_SPANS)])
def test_every_span_of_them_is_counted_by_what_became_of_it(
    body: bytes, outcomes: dict[str, int]
) -> None:
    """Whole lives, whole steps and spans that were cut off are not scored."""
    assert SpanDecoder().decode(body).outcomes == outcomes


def test_kinds_come_from_the_names_of_known_spans() -> None:
    """Waiting is never listed, loading data is."""
    sections = (*SpanDecoder().decode(lens()).batch.sections,)
    sections += SpanDecoder().decode(datadog()).batch.sections
    assert {section.name: section.kind for section in sections} == {
        "megatron.forward_backward": "compute",
        "megatron.grad_sync.finish": "wait",
        "megatron.optimizer_step": "compute",
        "megatron.save_checkpoint": "checkpoint",
        "pytorch.data_load": "data",
        "pytorch.forward": "compute",
        "pytorch.backward": "compute",
        "pytorch.allreduce": "wait",
        "pytorch.optimizer": "compute",
    }


def test_who_a_rank_of_nemo_lens_is() -> None:
    """Role, place in the pipeline, and which start of the job it is."""
    [source, *_] = [s for s in SpanDecoder().decode(lens()).batch.sources if s.rank == SLOW]
    assert (source.role, source.parallel) == ("trainer", (("pipeline", 1),))
    assert (source.session_id, source.node) == ("second-start", "node-1")
    assert (source.run_id, source.job, source.world_size) == ("4711", "megatron-lm", RANKS)


def test_names_beyond_the_limit_are_scored_as_one(live: Any, kit: Any) -> None:
    """Two hundred of a run have scores of their own; a name with a number in it cannot grow."""
    names = {f"layer {n}": 0.1 for n in range(250)}
    live.post(kit.spans_of(kit.rank(0, 1), range(5), names))
    sections = kit.eventually(lambda: live.windows() and live.windows()[0]["sections"])
    assert len(sections) == 201
    assert sections["<other>"] == "other"
    assert live.spans() == {"scored": 5 * 250}


def test_the_user_says_which_spans_are_scored_and_as_what() -> None:
    """By patterns that cover the whole name; a kind on the span wins."""
    names = SpanNames(["*.forward*"], ["*_backward"], {"wait": ["pytorch.*"]})
    assert SpanDecoder(names=names).decode(lens()).outcomes["excluded"] > 0
    decoded = SpanDecoder(names=names).decode(datadog())
    assert [(s.name, s.kind) for s in decoded.batch.sections] == [("pytorch.forward", "wait")]


def test_the_user_names_further_attributes() -> None:
    """They win over the built-in ones, which still hold for other senders."""
    request = ExportTraceServiceRequest.FromString(datadog())
    for resource_spans in request.resource_spans:
        for span in resource_spans.scope_spans[0].spans:
            span.attributes.add(key="mpi.rank").value.string_value = "1"
            span.attributes.add(key="stage").value.string_value = "all of it"
            span.attributes.add(key="pool").value.string_value = "critic"
            span.attributes.add(key="n").value.int_value = 7
    own = {"rank": ("mpi.rank",), "section": ("stage",), "role": ("pool",), "step": ("n",)}
    decoder = SpanDecoder(Aliases().extended(**own))
    batch = decoder.decode(request.SerializeToString()).batch
    assert {(s.rank, s.role) for s in batch.sources} == {(1, "critic")}
    assert [s.name for s in batch.sections] == ["all of it"]
    assert set(batch.step.tolist()) == {7}
    assert {s.rank for s in decoder.decode(lens()).batch.sources} == set(range(RANKS))


def test_a_rank_that_no_integer_is_is_bad_and_none_is_no_rank() -> None:
    """1.5 is a mistake of the sender; nothing at all is somebody else's span."""
    text = json.dumps(MessageToDict(ExportTraceServiceRequest.FromString(lens())))
    half = json.loads(text.replace('"nv.dl.rank", "value": {"intValue": "1"}',
                                   '"nv.dl.rank", "value": {"doubleValue": 1.5}'))  # fmt: skip
    for resource_spans in half["resourceSpans"]:
        for span in resource_spans["scopeSpans"][0]["spans"]:
            span["traceId"], span["spanId"] = "1" * 32, "1" * 16
    assert SpanDecoder().decode_json(json.dumps(half).encode()).rejected == {
        "bad_rank": sum(LENS_SPANS.values()) // RANKS
    }
    nobody = lens().replace(b"nv.dl.rank", b"nv.dl.rink")
    assert SpanDecoder().decode(nobody).outcomes == {"no_rank": sum(LENS_SPANS.values())}
