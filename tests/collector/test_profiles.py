"""Profile on suspicion in a live collector: who is asked, how often, and what is shown.

Verdicts are made by hand; that real ones lead to a profile is shown in tests/profiles.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from otel_straggler import semconv
from otel_straggler.collector.api.commands import PROFILE_EXPIRES_S
from otel_straggler.collector.runs.profiles import DAY_S, ProfilePair, RunProfiles
from otel_straggler.collector.settings import CommandsSettings
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.model.operator_tables import OperatorTable, OperatorTime, operator_table_json

RANKS, SLOW, TOKEN = 8, 5, "s3cret"
ON = {"commands__enabled": True, "commands__token": TOKEN, "commands__profile_steps": 3}


@pytest.fixture
def verdicts(by_hand: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What scoring says of every run; tests change it. Rank 5 is slow, rank 2 is suspected."""
    current = [
        by_hand.verdict(node=f"node-{SLOW}"),
        by_hand.verdict("suspect", subject_id="2", rank=2, node="node-2"),
    ]
    worlds = (by_hand.world(step_s=0.1),)
    monkeypatch.setattr(
        Scorer, "verdicts", lambda *_: by_hand.run_verdicts(*current, worlds=worlds)
    )
    return current


@pytest.fixture
def begin(start: Any, kit: Any, verdicts: list[Any]) -> Any:
    """A collector with eight ranks that were scored and send heartbeats."""

    def begin(**changes: Any) -> Any:
        live = start(scoring__grace_s=20.0, **{**ON, **changes})
        for number in range(RANKS):
            me = kit.rank(number, RANKS)
            live.post(kit.spans_of(me, range(5)))
            beat = kit.beat_of(me, sent_at_s=2.0, step=4, progress_at_s=1.0)
            live.post(beat, "metrics")
        kit.eventually(live.windows)
        return live

    return begin


@pytest.fixture
def poll(kit: Any) -> Any:
    """A rank asks what is wanted, and sends a profile if it has one."""

    def poll(live: Any, number: int, profile: Any = None, outcome: str = "done") -> list[Any]:
        me = kit.rank(number, RANKS)
        asked = {"run": "run", "rank": number, "session": me.session_id, "node": me.node}
        headers = {semconv.COMMANDS_TOKEN_HEADER: TOKEN, "Content-Type": "application/json"}
        body = None
        if profile is not None:
            [id_] = profile
            asked["done"] = f"{id_}:{outcome}"
            body = json.dumps({"profiles": profile}).encode()
        method = "GET" if body is None else "POST"
        path = f"/v1/commands?{urlencode(asked)}"
        answer = kit.ask(live.addresses["otlp_http"], method, path, body, headers)
        assert answer.status == 200, answer
        return list(answer.json()["commands"])

    return poll


def wanted(live: Any, poll: Any) -> dict[int, Any]:
    """The commands of all ranks that have one."""
    commands = {number: poll(live, number) for number in range(RANKS)}
    return {number: each[0] for number, each in commands.items() if each}


def table(rank: int, mm_s: float) -> dict[str, Any]:
    operators = (OperatorTime("aten::mm", 3, mm_s), OperatorTime("aten::add", 3, 0.003))
    return operator_table_json(
        OperatorTable(rank=rank, first_step=9, n_steps=3, operators=operators)
    )


def pair_of(live: Any) -> Any:
    """The only pair of the report; empty values while there is none."""
    nothing = {"sentence": "", "operators": []}
    [pair] = live.report()["runs"]["run"].get("profiles", [nothing])
    return pair


def test_a_confirmed_slow_rank_and_one_healthy_peer_are_asked_and_compared(
    begin: Any, poll: Any, kit: Any
) -> None:
    """The same steps, later than both can have asked; nobody else, and not the one suspected."""
    live = begin()
    asked = kit.eventually(lambda: wanted(live, poll))
    assert SLOW in asked
    [peer] = asked.keys() - {SLOW}
    assert peer != 2
    assert {each["verb"] for each in asked.values()} == {"profile"}
    assert {each["steps"] for each in asked.values()} == {3}
    [first] = {each["first_step"] for each in asked.values()}
    text = f"Ranks 5 and {peer} are asked to profile their next steps."
    assert kit.eventually(lambda: pair_of(live)["sentence"]) == text
    poll(live, SLOW, {asked[SLOW]["id"]: table(SLOW, 0.36)})
    poll(live, peer, {asked[peer]["id"]: table(peer, 0.117)})
    kit.eventually(lambda: pair_of(live)["operators"])
    pair = pair_of(live)
    assert pair["sentence"] == (
        f"aten::mm takes 3.1x as long on rank 5 as on rank {peer} (120 ms against 39 ms a step)."
    )
    assert first >= 4 + 120, "steps of 0.1 s"
    assert [each["name"] for each in pair["operators"]] == ["aten::mm", "aten::add"]
    assert (pair["slow_steps"], pair["peer_steps"]) == ([9, 11], [9, 11])
    assert pair["operators"][0] | {"ratio": None} == {
        "name": "aten::mm", "slow_s": 0.12, "peer_s": 0.039, "difference_s": 0.081, "ratio": None,
        "slow_calls": 1.0, "peer_calls": 1.0, "on_gpu": False,
    }  # fmt: skip
    assert live.get("/v1/run?run=run").json()["profiles"] == [pair]
    assert wanted(live, poll) == {}


def test_a_rank_that_cannot_profile_says_why(begin: Any, poll: Any, kit: Any) -> None:
    """On the page, and not what it is: a failure."""
    live = begin()
    asked = kit.eventually(lambda: wanted(live, poll))
    poll(live, SLOW, {asked[SLOW]["id"]: {"reason": "nsys is at work\x1b[1m"}}, "refused")
    text = "Rank 5 was not profiled: nsys is at work [1m."
    kit.eventually(lambda: pair_of(live)["sentence"] == text)
    assert pair_of(live)["operators"] == []
    assert live.collector._worker.commands.counts()["profile", "refused"] == 1


@pytest.mark.parametrize("changes", [{"commands__profile_steps": 0}, {"commands__enabled": False}])
def test_nobody_is_asked_unless_both_are_switched_on(
    begin: Any, kit: Any, changes: dict[str, Any]
) -> None:
    """The default."""
    live = begin(**changes)
    before = live.collector._worker.snapshot
    kit.eventually(lambda: live.collector._worker.snapshot is not before)
    assert live.collector._worker.commands.counts() == {}
    assert "profiles" not in live.report()["runs"]["run"]
    assert CommandsSettings().profile_steps == 0


def test_what_is_no_profile_is_refused(begin: Any, poll: Any, kit: Any) -> None:
    """With a sentence; the command goes on waiting."""
    live = begin()
    asked = kit.eventually(lambda: wanted(live, poll))
    for wrong in ({"version": 9}, {"reason": []}, [], {**table(SLOW, 0.1), "n_steps": 0}):
        me = kit.rank(SLOW, RANKS)
        query = {"run": "run", "rank": SLOW, "session": me.session_id, "node": me.node}
        answer = kit.ask(
            live.addresses["otlp_http"],
            "POST",
            f"/v1/commands?{urlencode(query)}",
            json.dumps({"profiles": {asked[SLOW]["id"]: wrong}}).encode(),
            {semconv.COMMANDS_TOKEN_HEADER: TOKEN, "Content-Type": "application/json"},
        )
        assert answer.status == 400, wrong
        assert "profile" in answer.json()["message"]
    assert SLOW in wanted(live, poll)


def test_a_profile_that_was_not_asked_for_is_not_taken(begin: Any, poll: Any, kit: Any) -> None:
    """By another rank, for another command."""
    live = begin()
    asked = kit.eventually(lambda: wanted(live, poll))
    [peer] = asked.keys() - {SLOW}
    poll(live, peer, {asked[SLOW]["id"]: table(peer, 9.0)})
    poll(live, SLOW, {"ffff": table(SLOW, 9.0)})
    assert set(wanted(live, poll)) == {SLOW, peer}


def test_a_person_cannot_ask_for_a_profile(begin: Any, kit: Any) -> None:
    """It is the collector's, which chooses two ranks to compare."""
    live = begin()
    body = json.dumps({"verb": "profile", "run": "run", "ranks": [1]}).encode()
    headers = {semconv.COMMANDS_TOKEN_HEADER: TOKEN, "Content-Type": "application/json"}
    answer = kit.ask(live.addresses["metrics"], "POST", "/v1/commands", body, headers)
    assert answer.status == 400
    assert b"dump_stacks, dump_flight_record" in answer.body


def test_a_verdict_that_may_mean_another_rank_asks_nobody(
    begin: Any, poll: Any, kit: Any, by_hand: Any, verdicts: list[Any]
) -> None:
    """Steps are profiled only where the times separate the slow rank from its victims."""
    verdicts[:] = [by_hand.verdict(node=f"node-{SLOW}", is_localised=False)]
    live = begin()
    before = live.collector._worker.snapshot
    kit.eventually(lambda: live.collector._worker.snapshot is not before)
    assert wanted(live, poll) == {}


# --- the state of a run --------------------------------------------------------------------------


def pair(rank: int, at_s: float) -> ProfilePair:
    return ProfilePair(
        group="", subject_id=f"rank/{rank}", attempt=0, section="", slow_rank=rank, peer_rank=0,
        asked_at_s=at_s,
    )  # fmt: skip


def test_a_run_is_profiled_so_often_a_day_and_each_slow_rank_once() -> None:
    """A day later there is room again; another attempt of the rank counts by itself."""
    profiles = RunProfiles()
    for rank in (3, 4):
        assert profiles.has_room(2, 10.0)
        profiles.add(pair(rank, 10.0))
    assert not profiles.has_room(2, 10.0 + DAY_S - 1.0)
    assert profiles.has_room(2, 10.0 + DAY_S)
    assert profiles.is_known("", "rank/3", 0)
    assert not profiles.is_known("", "rank/3", 1)
    assert not profiles.is_known("", "rank/7", 0)


def test_an_answer_counts_once_and_for_the_pair_that_waits() -> None:
    profiles = RunProfiles()
    profiles.add(pair(3, 0.0))
    profiles.observe("", 3, "no torch")
    profiles.observe("", 3, "expired")
    profiles.observe("other", 0, "of another group")
    profiles.observe("", 9, "nobody asked")
    [shown] = profiles.pairs
    assert (shown.slow, shown.peer) == ("no torch", None)
    assert list(profiles.ranks("")) == [0]


def test_a_profile_has_longer_to_answer_than_other_commands() -> None:
    """Steps may take minutes; the rank gives up before."""
    from otel_straggler.client.diagnostics.profiles import MAX_WAIT_S

    assert MAX_WAIT_S < PROFILE_EXPIRES_S
