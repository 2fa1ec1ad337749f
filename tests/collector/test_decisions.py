"""People dismiss and mute verdicts of a live collector."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.cli import main
from otel_straggler.detect.scores.scorer import Scorer

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def begin(start: Any, kit: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a collector that calls for the only rank of every run."""
    run_verdicts = by_hand.run_verdicts(by_hand.verdict(rank=0))
    monkeypatch.setattr(Scorer, "verdicts", lambda *_: run_verdicts)

    def begin(**settings: Any) -> Any:
        live = start(**settings)
        live.post(kit.spans_of(kit.rank(0, 1), range(5)))
        kit.eventually(live.windows)
        return live

    return begin


@pytest.fixture
def decide(kit: Any) -> Any:
    def decide(live: Any, headers: dict[str, str] = JSON, **changes: Any) -> Any:
        asked: dict[str, Any] = {
            "action": "dismiss",
            "run_id": "run",
            "subject_id": "gpu:GPU-5",
            "reason": "a profiler ran",
            "by": "ada",
        }
        asked = {k: v for k, v in (asked | changes).items() if v is not None}
        body = json.dumps(asked).encode()
        return kit.ask(live.addresses["metrics"], "POST", "/v1/decisions", body, headers)

    return decide


def calls(live: Any) -> float | None:
    value: float | None = live.value(semconv.VERDICT_PAGES, subject_id="gpu:GPU-5")
    return value


def test_a_dismissed_verdict_calls_nobody_and_is_counted(begin: Any, kit: Any, decide: Any) -> None:
    """The rank still straggles: that is true, whoever knows of it."""
    live = begin()
    assert calls(live) == 1
    answer = decide(live)
    assert (answer.status, answer.json()["action"]) == (200, "dismiss")
    kit.eventually(lambda: calls(live) == 0)
    assert live.value(semconv.RANK_STRAGGLING) == 1
    assert live.value(semconv.COLLECTOR_DECISIONS, action="dismiss", cause="slow_gpu") == 1
    run = live.report()["runs"]["run"]
    assert [v["pages"] for v in run["verdicts"]] == [False]
    [kept] = run["decisions"]
    assert (kept["reason"], kept["by"], kept["is_in_force"]) == ("a profiler ran", "ada", True)


def test_a_mute_ends_and_a_restore_takes_it_back(begin: Any, kit: Any, decide: Any) -> None:
    """Whichever comes first."""
    live = begin()
    assert decide(live, action="mute", seconds=3_600).status == 200
    kit.eventually(lambda: calls(live) == 0)
    assert decide(live, action="restore").status == 200
    kit.eventually(lambda: calls(live) == 1)
    assert decide(live, action="mute", seconds=2).status == 200
    kit.eventually(lambda: calls(live) == 0)
    kit.eventually(lambda: calls(live) == 1)


def test_decisions_survive_a_restart_with_a_history(
    begin: Any, kit: Any, decide: Any, tmp_path: Path
) -> None:
    """Whoever was muted before the collector was upgraded is muted after."""
    path = str(tmp_path / "history.db")
    first = begin(history__path=path)
    assert decide(first, action="mute", seconds=3_600).status == 200
    first.stop()
    second = begin(history__path=path)
    kit.eventually(lambda: calls(second) == 0)
    assert second.value(semconv.COLLECTOR_DECISIONS, action="mute", cause="slow_gpu") == 1


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"action": "praise"}, 400),
        ({"reason": None}, 400),
        ({"reason": "  "}, 400),
        ({"reason": "x" * 501}, 400),
        ({"run_id": 7}, 400),
        ({"action": "mute"}, 400),
        ({"action": "mute", "seconds": 0}, 400),
        ({"action": "mute", "seconds": True}, 400),
        ({"action": "mute", "seconds": 1e9}, 400),
        ({"subject_id": "gpu:GPU-6"}, 404),
        ({"run_id": "another"}, 404),
        ({"headers": {"Content-Type": "text/plain"}}, 415),
        ({"headers": {}}, 415),
        ({"headers": {**JSON, "Host": "evil.example"}}, 403),
        ({"reason": "x" * 9_000}, 413),
    ],
)
def test_a_wrong_decision_is_refused_and_changes_nothing(
    begin: Any, decide: Any, wrong: dict[str, Any], status: int
) -> None:
    """Among them what a foreign page could make a browser send."""
    live = begin()
    answer = decide(live, **wrong)
    assert (answer.status, list(answer.json())) == (status, ["error"])
    assert not any(live.samples(semconv.COLLECTOR_DECISIONS.prometheus_name).values())
    assert calls(live) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff" * 100, b"[" * 5_000])
def test_what_is_no_json_object_is_refused(begin: Any, kit: Any, body: bytes) -> None:
    """With one line that says what was expected."""
    live = begin()
    answer = kit.ask(live.addresses["metrics"], "POST", "/v1/decisions", body, JSON)
    assert answer.status == 400
    assert "expected a JSON object" in answer.json()["error"]


def test_where_decisions_are_not_allowed_the_path_is_not_there(begin: Any, decide: Any) -> None:
    """For an address that more people reach than should silence an alarm."""
    live = begin(metrics__decisions=False)
    assert decide(live).status == 404
    assert calls(live) == 1


def test_only_post_decides(begin: Any, kit: Any) -> None:
    """A link that somebody opens changes nothing."""
    live = begin()
    answer = live.get("/v1/decisions")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.fixture
def hung(start: Any, kit: Any) -> Any:
    """A collector with a run whose group "actor" is lost, and "critic" has ended."""
    live = start(liveness__lost_after_s=0.5)
    for group, outcome in (("actor", None), ("critic", "ok")):
        source = kit.rank(0, 1, group=group)
        now_s = time.time()
        ended_at_s = now_s if outcome else None
        beat = kit.beat_of(source, sent_at_s=now_s, finished_at_s=ended_at_s, outcome=outcome)
        assert live.post(beat, "metrics").status == 200
    kit.eventually(lambda: hang_of(live)["state"] == "lost")
    return live


def hang_of(live: Any, group: str = "actor") -> dict[str, Any]:
    worlds = live.report()["runs"].get("run", {}).get("liveness", [])
    result = {world["group"]: world for world in worlds}
    return result.get(group, {"state": None})


def test_a_hang_is_acknowledged_over_the_same_endpoint(hung: Any, kit: Any, decide: Any) -> None:
    """It stays what it is, and is in the list of decisions."""
    assert hang_of(hung)["acknowledged"] is False
    assert decide(hung, subject_id="hang:actor").status == 200
    kit.eventually(lambda: hang_of(hung)["acknowledged"])
    assert hang_of(hung)["state"] == "lost"
    [kept] = hung.report()["runs"]["run"]["decisions"]
    assert (kept["subject_id"], kept["is_in_force"]) == ("hang:actor", True)
    assert hung.value(semconv.COLLECTOR_DECISIONS, action="dismiss", cause="unknown") == 1
    assert decide(hung, subject_id="hang:critic").status == 404
    assert decide(hung, subject_id="hang:nobody").status == 404


def test_the_command_line_acknowledges_what_hangs(
    hung: Any, kit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a name where one group hangs only; a mistake says what there is."""
    url = ["--collector", f"http://{hung.addresses['metrics']}", "--reason", "seen"]
    assert main(["verdict", "dismiss", "hang", *url]) == 0
    assert capsys.readouterr().out == "dismissed: hang:actor in run run\n"
    kit.eventually(lambda: hang_of(hung)["acknowledged"])
    assert main(["verdict", "restore", "hang:actor", "--run", "run", *url]) == 0
    kit.eventually(lambda: not hang_of(hung)["acknowledged"])
    assert main(["verdict", "mute", "hang:critic", "--for", "1h", *url]) == 0
    assert main(["verdict", "dismiss", "hang:other", *url]) != 0
    assert "hang:actor (run run)" in capsys.readouterr().err
    assert main(["verdict", "dismiss", "hang:critic", *url]) != 0
    assert "stuck or lost" in capsys.readouterr().err
