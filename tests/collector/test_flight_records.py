"""Flight records of a stuck run: who is asked, what the answers change, and which are not taken."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import pytest

from otel_straggler import semconv
from otel_straggler.collector.runs.collectives import AGAIN_S, SILENT_S
from otel_straggler.model.flight_json import MAX_BYTES, flight_record_json
from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup

from .test_hangs import BEAT_S, RANKS, World

TOKEN = "s3cret"
WORLD = ProcessGroup("default_pg", tuple(range(RANKS)), "0", "cpu")


def waiting(rank: int, sequence: int = 7, age_s: float = 60.0) -> FlightRecord:
    call = Collective(group=WORLD, sequence=sequence, name="all_reduce", age_s=age_s)
    return FlightRecord(
        rank=rank, groups=(WORLD,), enqueued={WORLD: sequence}, completed={WORLD: sequence - 1},
        calls=(call,),
    )  # fmt: skip


def elsewhere(rank: int, sequence: int = 6) -> FlightRecord:
    call = replace(waiting(rank, sequence).calls[0], is_done=True)
    newest = {WORLD: sequence}
    return FlightRecord(
        rank=rank, groups=(WORLD,), enqueued=newest, completed=newest, calls=(call,)
    )


@pytest.fixture
def stuck(kit: Any) -> World:
    """Four ranks that have stood still in one section for longer than their timeout."""
    settings = {"commands__enabled": True, "commands__token": TOKEN}
    world = World(kit, **settings)
    world.live(60.0, moving=range(RANKS))
    for _ in range(200):
        world.live(BEAT_S)
        if world.look()["why"]:
            break
    assert world.look()["why"] == "joined_but_stuck"
    return world


def answer(world: World, *records: FlightRecord) -> None:
    """What ranks send for the commands that they were given."""
    for record in records:
        key = "run", "", record.rank
        world.worker.receive_flight_record(key, record, 0.0)
    world.worker.process_queued()


def asked(world: World, *, is_done: bool = False) -> list[int]:
    """Ranks with a command for their flight record; ``is_done``: which they report as done."""
    ranks = []
    for rank in range(RANKS):
        me = world.source(rank)
        query = {"run": "run", "rank": rank, "session": me.session_id, "node": me.node}
        commands = json.loads(world.worker.commands.poll(urlencode(query)))["commands"]
        wanted = [each["id"] for each in commands if each["verb"] == semconv.DUMP_FLIGHT_RECORD]
        ranks += [rank for _ in wanted]
        if is_done:
            query["done"] = ",".join(f"{id_}:done" for id_ in wanted)
            world.worker.commands.poll(urlencode(query))
    return ranks


def test_a_rank_that_heartbeats_cannot_tell_apart_is_named(stuck: World) -> None:
    """With the collective, the section and the step; and forgotten once the run goes on."""
    assert asked(stuck) == list(range(RANKS))
    assert stuck.look()["collective"] is None
    answer(stuck, *(waiting(rank) for rank in (0, 1, 3)), elsewhere(2))
    hang = stuck.look()
    assert (hang["why"], hang["culprits"], hang["victims"]) == ("never_joined", [2], 3)
    assert hang["sentence"] == (
        "Rank 2 has not entered all_reduce #7 of default_pg (it is in section forward of step 60); "
        "ranks 0, 1 and 3 wait for it."
    )
    view = stuck.worker.snapshot.runs["run"]
    assert view.hangs[""].blame is not None
    stuck.live(30.0, moving=range(RANKS))
    assert stuck.look()["collective"] is None
    (earlier,) = stuck.look()["earlier"]
    assert earlier["culprits"] == [2]


def test_a_rank_that_skipped_a_collective_and_went_on_is_named_and_nobody_else(
    stuck: World,
) -> None:
    """It is ahead of those that it keeps waiting, and heartbeats alone would blame them."""
    stuck.beats[3] = {"step": 61, "open_section": "backward"}
    stuck.live(5.0)
    assert stuck.look()["culprits"] == [0, 1, 2]
    answer(stuck, *(waiting(rank) for rank in range(3)), elsewhere(3))
    hang = stuck.look()
    assert (hang["why"], hang["culprits"], hang["victims"]) == ("never_joined", [3], 3)


def test_a_record_counts_until_its_rank_moves(stuck: World) -> None:
    """Whether it has come to the collective since, nobody knows."""
    answer(stuck, *(waiting(rank) for rank in (0, 1, 3)), elsewhere(2))
    assert stuck.look()["culprits"] == [2]
    stuck.live(5.0, moving=[2])
    assert stuck.look()["collective"] is None


def test_a_rank_that_does_not_answer_is_named_after_a_while(stuck: World) -> None:
    """By the collective in which all others are; it is not said to be elsewhere."""
    answer(stuck, *(waiting(rank) for rank in (0, 1, 3)))
    assert stuck.look()["collective"] is None
    stuck.live(SILENT_S + 1.0)
    hang = stuck.look()
    [culprit] = hang["collective"]["culprits"]
    assert (culprit["rank"], culprit["why"]) == (2, "no_dump")
    assert "Rank 2 does not answer, and is waited for in all_reduce #7" in hang["sentence"]


def test_a_rank_without_a_flight_recorder_is_not_named(stuck: World) -> None:
    """It has answered that it has none."""
    answer(stuck, *(waiting(rank) for rank in (0, 1, 3)))
    stuck.worker.receive_flight_record(("run", "", 2), None, 0.0)
    stuck.worker.process_queued()
    stuck.live(SILENT_S + 1.0)
    assert stuck.look()["collective"] is None


def test_ranks_are_asked_again_if_their_records_say_nothing(stuck: World) -> None:
    """After twice as long each time, and no more once they do."""
    silent = FlightRecord(rank=0, groups=(WORLD,))
    asked_at_s = []
    for _ in range(40):
        if ranks := asked(stuck, is_done=True):
            assert ranks == list(range(RANKS))
            asked_at_s.append(stuck.now_s)
            answer(stuck, *(replace(silent, rank=rank) for rank in range(RANKS)))
        stuck.live(BEAT_S)
    pauses_s = [later_s - at_s for at_s, later_s in pairwise(asked_at_s)]
    assert len(pauses_s) == 3
    for pause_s, expected_s in zip(pauses_s, (AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S), strict=True):
        assert expected_s - BEAT_S <= pause_s <= expected_s + 2 * BEAT_S
    answer(stuck, *(waiting(rank) for rank in (0, 1, 3)), elsewhere(2))
    stuck.live(1_000.0)
    assert asked(stuck) == []


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
def live(start: Any, kit: Any) -> Any:
    """A collector that knows ranks 0 and 1, of which both were asked by a person."""
    running = start(commands__enabled=True, commands__token=TOKEN)
    for number in (0, 1):
        beat = kit.beat_of(kit.rank(number), sent_at_s=2.0, step=3, progress_at_s=1.0)
        assert running.post(beat, "metrics").status == 200
    worker = running.collector._worker
    kit.eventually(lambda: "run" in worker.snapshot.runs)
    kit.eventually(lambda: worker.snapshot.runs["run"].live_ranks("") == [0, 1])
    return running


@pytest.fixture
def received(live: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, float]]:
    """Records that the collector hands on."""
    taken: list[tuple[Any, Any, float]] = []
    monkeypatch.setattr(live.collector._worker.commands, "_receive",
                        lambda key, record, age_s: taken.append((key, record, age_s)))  # fmt: skip
    return taken


@pytest.fixture
def send(live: Any, kit: Any) -> Any:
    """What rank 1 sends, for a command of its own unless told otherwise."""

    def send(body: Any, *, number: int = 1, token: str | None = TOKEN, **headers: str) -> Any:
        me = kit.rank(number)
        asked = {"run": "run", "rank": number, "session": me.session_id, "node": me.node}
        if isinstance(body, dict) and body.get("flight_records"):
            asked["done"] = ",".join(f"{id_}:done" for id_ in body["flight_records"])
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        if token is not None:
            sent[semconv.COMMANDS_TOKEN_HEADER] = token
        path = f"/v1/commands?{urlencode(asked)}"
        return kit.ask(live.addresses["otlp_http"], "POST", path, content, sent)

    return send


def command_for(live: Any, rank: int, verb: str = semconv.DUMP_FLIGHT_RECORD) -> str:
    (id_,) = live.collector._worker.commands.ask("run", "", [rank], verb, "test")
    return str(id_)


def record_body(id_: str, **changes: Any) -> dict[str, Any]:
    record = {**flight_record_json(elsewhere(1)), "age_s": 0.25, **changes}
    return {"flight_records": {id_: record}}


def test_a_record_that_was_asked_for_is_handed_on_once(live: Any, send: Any, received: Any) -> None:
    """With its age; the command is done then."""
    id_ = command_for(live, 1)
    assert send(record_body(id_)).status == send(record_body(id_)).status == 200
    [(key, record, age_s)] = received
    assert (key, age_s) == (("run", "", 1), 0.25)
    assert record.enqueued == {WORLD: 6}
    assert live.collector._worker.commands.outcomes([id_]) == {id_: "done"}


def test_a_record_that_was_not_asked_for_is_not_taken(live: Any, send: Any, received: Any) -> None:
    """For another verb, by another rank, for no command."""
    for id_ in (command_for(live, 1, semconv.DUMP_STACKS), command_for(live, 0), "ffff"):
        assert send(record_body(id_)).status == 200
    assert received == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"flight_records": 3}', {}, 400),
        ({"flight_records": {str(n): {} for n in range(9)}}, {}, 400),
        (b" " * (MAX_BYTES + 1), {}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
    ],
)
def test_a_body_that_is_none_is_refused(
    send: Any, received: Any, body: Any, headers: dict[str, str], status: int
) -> None:
    """By its size, form and type; nothing is handed on."""
    assert send(body, **headers).status == status
    assert received == []


@pytest.mark.parametrize(
    "changes", [{"groups": 3}, {"version": 9}, {"age_s": -1.0}, {"age_s": None}, {"age_s": 1e9}]
)
def test_a_record_that_is_none_is_refused(
    live: Any, send: Any, received: Any, changes: dict[str, Any]
) -> None:
    """With a sentence; the command goes on waiting."""
    id_ = command_for(live, 1)
    refused = send(record_body(id_, **changes))
    assert refused.status == 400
    assert "flight record" in refused.json()["message"]
    assert received == []


def test_a_record_without_the_token_is_refused(live: Any, send: Any, received: Any) -> None:
    """As every poll."""
    id_ = command_for(live, 1)
    assert send(record_body(id_), token=None).status == 401
    assert send(record_body(id_), token="wrong").status == 403
    assert received == []


def test_a_rank_that_refuses_or_fails_has_no_record(live: Any, kit: Any, received: Any) -> None:
    """Nobody waits for one."""
    me = kit.rank(1)
    for outcome in ("failed", "refused"):
        id_ = command_for(live, 1)
        asked = {"run": "run", "rank": 1, "session": me.session_id, "node": me.node,
                 "done": f"{id_}:{outcome}"}  # fmt: skip
        headers = {semconv.COMMANDS_TOKEN_HEADER: TOKEN}
        path = f"/v1/commands?{urlencode(asked)}"
        assert kit.ask(live.addresses["otlp_http"], "GET", path, None, headers).status == 200
    assert received == [(("run", "", 1), None, 0.0)] * 2
