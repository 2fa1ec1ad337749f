"""What the product answers about seventeen simulated runs, to the digit: offline, live, at the end,
and after a restart. ``OTEL_STRAGGLER_GOLDEN=write`` writes the answers of today."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .plain import as_text, changes, differences, headers, metrics_by_run, plain
from .scenarios import ARGUMENTS, OFFLINE, RUNS
from .stage import (
    MARKER,
    Clock,
    Collector,
    Reported,
    before_s,
    chunks,
    read_record,
    record,
    running_alertmanager,
)
from .texts import COMMANDS

HELD = Path(__file__).parent / "held"
WRITES = os.environ.get("OTEL_STRAGGLER_GOLDEN") == "write"
LIVE_AT = 11
"""The chunk after which all but the shortest runs still train."""
AWAY = 20
"""Chunks for which the collector is away."""
Json = dict[str, Any]
MAX_SHOWN = 40
_AFTER = {
    "live": ("end",),
    "end": ("after a restart",),
    "told until the end": ("told after a restart",),
}
"""Of which moments only the differences from this one are held."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    record(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the collector."""
    return tmp_path_factory.mktemp("collector")


@pytest.fixture(scope="module")
def answers(records: Path, folder: Path) -> Json:
    """By run ("" for the collector's own), then by moment: what is other than before."""
    reported: Json = {name: {} for name in ("", *RUNS, MARKER)}
    before: dict[tuple[str, str], Json] = {}
    for moment, by_run in _moments(records, folder):
        for name, its in json.loads(json.dumps(by_run)).items():
            reported[name][moment] = changes(before.get((name, moment), {}), its)
            before |= {(name, after): its for after in _AFTER.get(moment, ())}
    return reported


def _moments(records: Path, folder: Path) -> Iterator[tuple[str, Json]]:
    pieces = chunks([read_record(records, name) for name in ARGUMENTS])
    last, again = len(pieces) - 1, len(pieces) + AWAY
    clock = Clock.create(folder / "clock", before_s(-1))
    reported = Reported()
    with running_alertmanager(reported) as alertmanager:
        with Collector(folder, clock, reported, alertmanager) as first:
            first.begin(-1)
            first.pass_time([], -1)
            for number, sent in enumerate(pieces):
                first.pass_time(sent, number)
                if number == LIVE_AT:
                    first.say(records)
                if number in (LIVE_AT, last):
                    yield ("end" if number == last else "live"), asked(first)
        yield "told until the end", reported.by_run(clock)
        clock.set(before_s(again))
        with Collector(folder, clock, reported, alertmanager) as second:
            second.begin(again)
            second.pass_time([], again)
            yield "after a restart", asked(second)
        yield "told after a restart", reported.by_run(clock)


def asked(collector: Collector) -> Json:
    """All answers of a moment, by run."""
    text = collector.get("/metrics").decode()
    metrics = metrics_by_run(text)
    result: Json = {
        "": {
            "/metrics": metrics.pop("", {}),
            "headers": headers(text),
            "/v1/runs": {
                each["run_id"]: plain(each) for each in collector.json("/v1/runs")["runs"]
            },
        }
    }
    for run_id in (*RUNS, MARKER):
        result[run_id] = {
            "/metrics": metrics.pop(run_id, {}),
            "/v1/report": plain(collector.json("/v1/report", run=run_id)),
        }
        for path in ("/v1/run", "/v1/timeline", "/v1/scalars"):
            result[run_id][path] = plain(collector.json(path, run=run_id))
        for rank in (0, *((3,) if run_id != MARKER else ())):
            answer = collector.json("/v1/rank", run=run_id, rank=rank)
            result[run_id][f"/v1/rank {rank}"] = plain(answer)
    assert not metrics
    return result


@pytest.mark.parametrize("name", ["", *RUNS, MARKER])
def test_a_collector_answers_as_before(name: str, answers: Json) -> None:
    """While the run trains, when all is over, and after a restart with a history."""
    compare(name or "collector", answers[name])


@pytest.mark.parametrize("name", OFFLINE)
def test_a_recorded_run_is_scored_as_before(name: str, records: Path) -> None:
    """``otel-straggler score --json`` of what ``simulate`` writes."""
    compare(f"offline {name}", plain(json.loads((records / f"{name}.report").read_text())))


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("answers")
def test_a_command_prints_what_it_did(name: str, folder: Path) -> None:
    """While the runs train; on a terminal of 120 columns."""
    path, text = HELD / f"cli/{name.replace(' ', '_')}.txt", (folder / f"{name}.txt").read_text()
    if WRITES:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text.splitlines() == path.read_text().splitlines()


def compare(name: str, result: Json) -> None:
    path = HELD / f"{name.replace(' ', '_')}.json"
    result = json.loads(json.dumps(result))
    if WRITES:
        path.parent.mkdir(exist_ok=True)
        path.write_text(as_text(result) + "\n")
        return
    reported = list(differences(json.loads(path.read_text()), result))
    shown = "\n".join(reported[:MAX_SHOWN])
    assert not reported, f"{name}: {len(reported)} answers are others; the first are\n{shown}"
