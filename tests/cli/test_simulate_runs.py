"""`otel-straggler simulate` for runs of any layout."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.recordings.files import read_recording
from otel_straggler.testing import CapturedRequests

SMALL = ("simulate", "--layout", "tp2,pp2,dp4", "--steps", "40", "--microbatches", "2")
FAULT = ("--fault", "compute:1.5@rank5:step10")


def recorded(path: Path):
    with path.open("rb") as file:
        return read_recording(file, path.name).batch


def test_the_example_of_the_help_makes_a_file_that_can_be_scored(call, tmp_path: Path) -> None:
    """Layout, fault and labels; the score's own answer is that of the labels."""
    csv, labels, report = (tmp_path / name for name in ("run.csv", "labels.json", "report.json"))
    code, out, err = call(*SMALL, *FAULT, "-o", csv, "--labels", labels)
    assert (code, out, err) == (0, "", "")
    assert {dict(s.parallel)["pipeline"] for s in recorded(csv).sources} == {0, 1}
    reported = json.loads(labels.read_text())
    assert reported["run_id"] == "simulated"
    (label,) = reported["labels"]
    assert (label["ranks"], label["cause"], label["onset_step"]) == ([5], "slow_gpu", 10)
    code, out, _ = call("score", csv, "--json")
    assert code == 0
    medians = json.loads(out)["runs"]["simulated"]["windows"][0]["section_medians_s"]["forward"]
    report.write_text(out)
    assert max(medians, key=medians.__getitem__) == "5"


def test_several_faults_and_all_kinds_of_noise_are_taken(call, tmp_path: Path) -> None:
    """Each option reaches the run."""
    path, labels = tmp_path / "run.bin", tmp_path / "labels.json"
    code, _, err = call(
        "simulate", "--ranks", 16, "--layout", "ep2,pp2", "--steps", 30, "--ranks-per-node", 4,
        "--fault", "data:0.1@host1:step3", "--fault", "flap:1.2@rank9:step5-20",
        "--noise", "ar", "--timing", "synchronised", "--step-s", 1, "--stage-factor", 1.3,
        "--sequence-cv", 0.2, "--expert-cv", 0.3, "--gc-every-steps", 10, "--gc-s", 0.3,
        "--checkpoint-every", 10, "--eval-every", 12, "--warm-up-steps", 3, "--diurnal", 0.01,
        "--common-mode", 0.02, "--rank-offset", 0.01, "--spikes", 0, "--missing-reports", 0.1,
        "--clock-offset-s", 0.01, "--first-step", 1, "--restart-at-step", 20, "--renumbers",
        "--report-tokens", "--no-report-topology", "--seed", 3, "--run-id", "mine",
        "--format", "otlp-proto", "-o", path, "--labels", labels,
    )  # fmt: skip
    assert (code, err) == (0, "")
    kinds = [label["kind"] for label in json.loads(labels.read_text())["labels"]]
    assert kinds == ["data", "flap", "stage_factor", "sequence_cv", "expert_cv"]
    batch = recorded(path)
    assert {s.attempt for s in batch.sources} == {0, 1}
    assert {s.run_id for s in batch.sources} == {"mine"}
    assert {s.parallel for s in batch.sources} == {()}
    assert {s.node for s in batch.sources} == {f"node-{n}" for n in range(4)}
    assert {s.name for s in batch.sections} >= {"experts", "pipeline_wait", "gc", "eval"}
    assert batch.step.min() == 1


def test_a_run_is_long_enough_for_its_faults(call, tmp_path: Path) -> None:
    """Nobody has to count steps."""
    path = tmp_path / "run.csv"
    fault = ("--fault", "compute:1.1@rank1:step300")
    code, _, err = call("simulate", "--ranks", 2, "--microbatches", 1, *fault, "-o", path)
    assert (code, err) == (0, "")
    assert np.unique(recorded(path).step).tolist() == list(range(500))


def test_a_run_is_replayed_with_signs_of_life(call) -> None:
    """As fast as it can; every rank says at last that it has ended."""
    with CapturedRequests() as sink:
        code, _, err = call(*SMALL, *FAULT, "--send", sink.url, "--speed", 0)
        spans, points = sink.spans(), sink.points()
    assert code == 0, err
    assert f"{len(spans)} spans sent" in err
    assert {span.resource["training.parallel.pipeline.rank"] for span in spans} == {0, 1}
    assert len({span.resource["training.rank"] for span in spans}) == 16
    ended = [p for p in points if p.metric == "straggler.rank.finished.timestamp"]
    assert len(ended) == 16


def test_the_first_steps_are_sent_at_once_and_dated_back(call) -> None:
    """The run has then got to where the clock is."""
    begin_ns = time.time_ns()
    with CapturedRequests() as sink:
        quick = ("--quick-until-step", 40, "--speed", 1e6)
        run = ("--layout", "dp4", "--steps", 41, *quick)
        code, _, err = call("simulate", *run, "--send", sink.url)
        assert code == 0, err
        spans = sink.spans()
    spent_ns = time.time_ns() - begin_ns
    assert min(span.start_ns for span in spans) < begin_ns - 40e9
    newest_ns = min(s.start_ns for s in spans if s.attributes["training.step"] == 40)
    assert abs(newest_ns - begin_ns) <= spent_ns + 1e9


def test_without_speed_a_run_is_sent_as_it_is(call) -> None:
    """Spans, and how each rank has ended."""
    with CapturedRequests() as sink:
        code, _, _ = call(*SMALL, "--send", sink.url)
        assert code == 0
        assert sink.spans()
        ends = sink.points(semconv.RANK_FINISHED)
        assert [point.attributes["outcome"] for point in ends] == ["ok"] * len(ends) != []
        assert len(sink.points(semconv.HEARTBEAT)) == len(ends)  # only the last of each rank


@pytest.mark.parametrize(
    ("arguments", "destination", "value"),
    [
        (("--layout", "tp3,x"), "layout", "tp3,x"),
        (("--layout", "tp3", "--ranks", "16"), "layout", "tp3"),
        (("--fault", "compute:1.1"), "fault", "compute:1.1"),
        (("--fault", "compute:1.1@rank99:step1"), "fault", "rank99"),
        (("--layout", "dp8", "--noise", "XY"), "noise", "XY"),
        (("--noise", "XY"), "noise", "XY"),
        (("--layout", "dp8", "--slow-rank", "3"), "--slow-rank", "3"),
        (("--layout", "dp8", "--scenario", "healthy"), "--scenario", "healthy"),
        (("--layout", "dp8", "--stage-factor", "1.2"), "stage_factor", "1.2"),
        (("--layout", "dp8", "--timing", "x"), "--timing", "x"),
        (("--layout", "dp8", "--restart-at-step", "9"), "--format", "csv"),
        (("--layout", "dp8", "--labels", "/nonexistent/x"), "--labels", "/nonexistent/x"),
        (("--labels", "x"), "--labels", "x"),
        (("--speed", "1"), "--speed", "1"),
        (("--layout", "dp8", "--report-hardware"), "--report-hardware", "--speed"),
        (("--quick-until-step", "9"), "--quick-until-step", "9"),
        (("--speed", "-1", "--send", "http://127.0.0.1:9"), "--speed", "-1"),
        (("--layout", "dp8", "--send", "127.0.0.1:9"), "--send", "127.0.0.1:9"),
    ],
)
def test_a_wrong_value_is_one_line_with_place_value_and_remedy(
    call, arguments: tuple[str, ...], destination: str, value: str
) -> None:
    """Exit code 2, nothing on standard output."""
    code, out, err = call("simulate", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("otel-straggler: error: ")
    assert err.count("\n") == 1
    assert destination in err
    assert value in err
