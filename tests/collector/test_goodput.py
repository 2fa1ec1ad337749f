"""Goodput of live runs: on `/v1/run`, on `/metrics`, over a restart, and from the history."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.cli import main
from otel_straggler.otlp.encode_events import EventRecord, encode_event

DAY_S = 86_400.0
STEPS = range(40)


def launch(name: str, at_s: float, attempt: int = 0, reason: str = "") -> bytes:
    """A launcher's event about both ranks."""
    attributes: dict[str, Any] = {semconv.LAUNCH_JOB: 1, semconv.LAUNCH_NODE_RANKS: "0, 1"}
    if reason:
        attributes[semconv.LAUNCH_REASON] = reason
    text = f"rank 1 ended by {reason}" if reason else name
    record = EventRecord(
        name=f"straggler.{name}", at_unix_s=DAY_S + at_s, text=text, attributes=attributes
    )
    resource = {semconv.RUN_ID: "run", semconv.RUN_ATTEMPT: attempt, semconv.HOST_NAME: "node-0"}
    return encode_event(record, resource=resource)


@pytest.fixture
def crash(kit) -> Callable[[Any], None]:
    """40 steps of a second with half of it loading data, a crash, and from step 36 on again."""

    def post(live: Any) -> None:
        posted = [live.post(launch("attempt.started", -10.0), "logs")]
        parts = {"data_loading": 0.5, "forward": 0.9}
        for attempt, steps in enumerate((STEPS, range(36, 60))):
            start_ns = round((DAY_S + attempt * 20.0) * 1e9)
            for number in range(2):
                source = kit.rank(number, attempt=attempt, session_id=f"{attempt}{number}")
                posted.append(live.post(kit.spans_of(source, steps, parts, start_ns=start_ns)))
            if not attempt:
                posted.append(live.post(launch("attempt.ended", 45.0, 0, "SIGKILL"), "logs"))
                posted.append(live.post(launch("attempt.started", 50.0, 1), "logs"))
        assert {answer.status for answer in posted} == {200}

    return post


def run_of(live: Any) -> dict[str, Any]:
    result: dict[str, Any] = live.get("/v1/run?run=run").json().get("run", {})
    return result


def goodput_of(live: Any) -> dict[str, Any]:
    return run_of(live).get("goodput") or {}


def lost(goodput: dict[str, Any]) -> dict[str, float]:
    return {each["reason"]: each["seconds"] for each in goodput.get("lost", ())}


def test_the_time_of_a_live_run_is_accounted_for(live, kit, crash) -> None:
    crash(live)
    kit.eventually(lambda: "redone" in lost(goodput_of(live)))
    goodput = goodput_of(live)
    seconds = lost(goodput)
    assert seconds["start_up"] == pytest.approx(10.0, abs=0.1)
    assert seconds["hang"] == pytest.approx(5.1, abs=0.2)
    assert seconds["restart"] == pytest.approx(5.0, abs=0.1)
    assert seconds["redone"] > 1.0
    whole_s = goodput["end_s"] - goodput["start_s"]
    assert goodput["productive_s"] + sum(seconds.values()) == pytest.approx(whole_s, abs=0.01)
    assert goodput["sentence"].startswith(f"Goodput {round(100 * goodput['goodput'])} %: ")
    assert goodput["attempts"] == 2


def test_the_same_is_on_the_page_of_metrics(live, kit, crash) -> None:
    crash(live)
    kit.eventually(lambda: live.value(semconv.RUN_LOST, reason="redone") is not None)
    assert live.value(semconv.RUN_LOST, reason="restart") == pytest.approx(5.0, abs=0.1)
    goodput = live.value(semconv.RUN_GOODPUT, run_id="run")
    assert goodput == pytest.approx(goodput_of(live)["goodput"], abs=0.1)
    assert live.value(semconv.RUN_ROLLING_GOODPUT, window="3600") is None  # it is younger


def test_log_records_of_others_are_accepted_and_not_read(live) -> None:
    assert live.post(b"\xff no request", "logs").status == 200
    assert live.post(b"\xff otel_straggler", "logs").status == 400


def test_an_account_survives_a_restart_and_is_in_the_history(
    start, kit, crash, tmp_path: Path
) -> None:
    path = tmp_path / "history.db"
    settings = {"history__path": str(path), "history__save_every_seconds": 0.1}
    first = start(**settings)
    crash(first)
    kit.eventually(lambda: "redone" in lost(goodput_of(first)))
    first.stop()
    second = start(**settings)
    for number in range(2):
        source = kit.rank(number, attempt=1, session_id=f"1{number}")
        body = kit.spans_of(
            source, range(60, 72), {"forward": 0.9}, start_ns=round((DAY_S + 20.0) * 1e9)
        )
        second.post(body)
    kit.eventually(lambda: goodput_of(second).get("end_s", 0.0) > DAY_S + 85.0)
    after = goodput_of(second)
    assert after["start_s"] == DAY_S - 10.0
    assert {"redone", "restart", "start_up"} <= lost(after).keys()
    second.stop()
    out = tmp_path / "out.json"
    assert main(["goodput", "--history", str(path), "--json", str(out)]) == 0
    [run] = json.loads(out.read_text())["runs"]
    [disruption] = run["disruptions"]
    assert (disruption["reason"], disruption["text"]) == ("SIGKILL", "rank 1 ended by SIGKILL")
    assert run["time_ns"]["restart"] == 5 * 10**9
    assert run["start_s"] == DAY_S - 10.0
