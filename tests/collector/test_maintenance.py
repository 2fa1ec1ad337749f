"""Maintenance of nodes at a live collector: taken, listed, shown, remembered, refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.api.maintenance import MAX_NODES

JSON = {"Content-Type": "application/json"}
PATH = "/v1/maintenance"


@pytest.fixture
def report(kit: Any) -> Any:
    def report(live: Any, headers: dict[str, str] = JSON, **changes: Any) -> Any:
        asked = {"node": "n1", "seconds": 3_600, "reason": "a fan", "by": "ada", **changes}
        body = json.dumps({k: v for k, v in asked.items() if v is not None}).encode()
        return kit.ask(live.addresses["metrics"], "POST", PATH, body, headers)

    return report


def listed(live: Any) -> list[str]:
    return [each["node"] for each in live.get(PATH).json()["maintenance"]]


def shown(live: Any) -> dict[str, float]:
    result = live.samples(semconv.MAINTENANCE_UNTIL.prometheus_name)
    return {dict(labels)["node"]: value for labels, value in result.items()}


def test_a_node_is_put_under_maintenance_and_taken_out_of_it(
    live: Any, kit: Any, report: Any
) -> None:
    """The answer says until when, on the collector's clock; the series shows it."""
    answer = report(live)
    reported = answer.json()
    assert answer.status == 200
    assert (reported["is_in_force"], reported["was_in_force"]) == (True, False)
    assert reported["until_ns"] * 1e-9 == pytest.approx(time.time() + 3_600, abs=30.0)
    kit.eventually(lambda: shown(live) == {"n1": reported["until_ns"] * 1e-9})
    assert listed(live) == ["n1"]
    assert live.get(PATH).json()["maintenance"][0]["reason"] == "a fan"
    over = report(live, seconds=None, until=time.time() - 1.0, reason=None).json()
    assert (over["is_in_force"], over["was_in_force"]) == (False, True)
    kit.eventually(lambda: shown(live) == {})
    assert listed(live) == []


def test_an_end_may_be_told_as_a_time(live: Any, report: Any) -> None:
    """Whoever plans by the clock."""
    until_s = time.time() + 1_000.0
    assert report(live, seconds=None, until=until_s).json()["until_ns"] == int(until_s * 1e9)


def test_it_survives_a_restart_with_a_history(
    start: Any, kit: Any, report: Any, tmp_path: Path
) -> None:
    """A node that is open on the bench is still so after the collector's upgrade."""
    path = str(tmp_path / "history.db")
    first = start(history__path=path)
    reported = report(first, node="n2").json()
    assert report(first, node="n1").status == 200
    report(first, node="n1", seconds=None, until=0)
    first.stop()
    second = start(history__path=path)
    kit.eventually(lambda: listed(second) == ["n2"])
    kit.eventually(lambda: shown(second) == {"n2": reported["until_ns"] * 1e-9})
    assert report(second, node="n2").json()["was_in_force"]


def test_without_a_history_it_is_kept_in_memory(start: Any, report: Any) -> None:
    """A new process knows nothing."""
    assert report(start()).status == 200
    assert listed(start()) == []


@pytest.mark.parametrize(
    ("wrong", "status", "printed"),
    [
        ({"node": None}, 400, "node: got None; expected a text of 1 to 500 characters"),
        ({"node": " "}, 400, "node: got ' '"),
        ({"node": 7}, 400, "node: got 7"),
        ({"reason": None}, 400, "reason: got None"),
        ({"reason": "x" * 501}, 400, "reason: got"),
        ({"by": 5}, 400, "by: got 5"),
        ({"seconds": None}, 400, "seconds, until: got None; expected one of them"),
        ({"until": 2e9}, 400, "seconds, until"),
        ({"seconds": 0}, 400, "seconds: got 0; expected 1 to 2592000, which is 30 days"),
        ({"seconds": -5}, 400, "seconds: got -5"),
        ({"seconds": True}, 400, "seconds: got True"),
        ({"seconds": "1h"}, 400, "seconds: got '1h'"),
        ({"seconds": 1e9}, 400, "seconds: got 1000000000.0"),
        ({"seconds": float("nan")}, 400, "NaN where a finite number is expected"),
        ({"seconds": None, "until": 9e9}, 400, "until: got 9000000000.0; expected seconds since"),
        ({"seconds": None, "until": -1}, 400, "until: got -1"),
        ({"headers": {"Content-Type": "text/plain"}}, 415, "application/json"),
        ({"headers": {}}, 415, "application/json"),
        ({"headers": {**JSON, "Host": "evil.example"}}, 403, "this Host is not served"),
        ({"reason": "x" * 9_000}, 413, ""),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    live: Any, report: Any, wrong: dict[str, Any], status: int, printed: str
) -> None:
    """Among them what a foreign page could make a browser send. Nothing changes."""
    answer = report(live, **wrong)
    assert answer.status == status
    assert printed in answer.json()["error"]
    assert listed(live) == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff" * 100, b"[" * 5_000])
def test_what_is_no_json_object_is_refused(live: Any, kit: Any, body: bytes) -> None:
    """With where it is described."""
    answer = kit.ask(live.addresses["metrics"], "POST", PATH, body, JSON)
    assert answer.status == 400
    assert (
        "expected a JSON object. See docs/operate/silent-and-stuck-ranks.md"
        in answer.json()["error"]
    )


def test_too_many_nodes_are_refused(live: Any, report: Any) -> None:
    """Each is a series."""
    for number in range(MAX_NODES):
        live.collector._maintenance.record(_work(f"n{number}"))
    answer = report(live, node="one-more")
    assert (answer.status, "at most 1000 hosts" in answer.json()["error"]) == (400, True)


def _work(node: str) -> Any:
    from otel_straggler.model.alert import Maintenance

    return Maintenance(node=node, reason="r", at_ns=0, until_ns=time.time_ns() + 10**12)


def test_where_decisions_are_not_allowed_neither_path_is_there(start: Any, report: Any) -> None:
    """One switch for all that people can change at this address."""
    live = start(metrics__decisions=False)
    assert (report(live).status, live.get(PATH).status) == (404, 404)


def test_only_get_head_and_post_are_answered(live: Any, kit: Any) -> None:
    """Reading changes nothing."""
    answer = kit.ask(live.addresses["metrics"], "DELETE", PATH)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert kit.ask(live.addresses["metrics"], "HEAD", PATH).status == 200


def test_hostile_names_are_shown_whole(live: Any, kit: Any, report: Any) -> None:
    """Nodes and reasons may be anything."""
    awkward = 'a"b\\c\nd} 1 größe'
    report(live, node=awkward, reason=awkward, by=awkward)
    kit.eventually(lambda: list(shown(live)) == [awkward])
    (labels,) = live.samples(semconv.MAINTENANCE_UNTIL.prometheus_name)
    assert (dict(labels)["reason"], dict(labels)["by"]) == (awkward, awkward)
