"""Ranks that mean harm, or have gone wrong: the agent stays small, and others are judged by what is
their own."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.agent import server as agent_server
from otel_straggler.agent.beats import BeatPage
from otel_straggler.agent.connections import Connection
from otel_straggler.agent.frames import Message, ProtocolError, encode
from otel_straggler.agent.learning import MAX_KEPT
from otel_straggler.agent.server import AgentServer
from otel_straggler.detect.hangs.rank_timeouts import MAX_LEARNED_S
from otel_straggler.log_lines import TextLines, one_line

from ..waiting import eventually
from .conftest import LocalAgent, MakeAgent, MakeClient
from .test_connections import INIT, WATCH, Raw, framed, open_files

IS_FULL = os.environ.get("OTEL_STRAGGLER_TEST_DOSE") == "full"
FRAMES = 100_000 if IS_FULL else 1_000
_ROW = 64
"""Cells of counts, and as many of the longest."""


@contextlib.contextmanager
def watched(agent: LocalAgent, rank: int, sections: list[str] | None = None) -> Iterator[Any]:
    """A rank that says what it likes, and its page."""
    raw, page = Raw(agent), BeatPage(sections or [])
    raw.send({**INIT, "rank": rank}, {**WATCH, "sections": sections or []}, file=page.file)
    assert [raw.answer()["type"] for _ in range(2)] == ["config", "ok"]
    yield raw, page
    raw.socket.close()


def beat_twice(page: BeatPage) -> None:
    for _ in range(3):
        page.beat()


# --- learned timeouts ----------------------------------------------------------------------------

ASK = {"type": "calculate", "kind": "heartbeat", "id": 1}


def test_answers_to_requests_to_learn_do_not_pile_up(make_agent: MakeAgent) -> None:
    """Found by attack: 1 GiB in 8 s."""
    agent = make_agent(workload_check_interval=600.0)
    with watched(agent, 1) as (raw, page):
        beat_twice(page)
        for number in range(500):
            raw.send({**ASK, "number": number, "selected": ["x" * 60_000], "out_of_section": "y"})
            assert raw.answer()["type"] == "timeouts"
        assert len(agent.server._learned._kept) <= MAX_KEPT


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "both", "number": 1},
        {"kind": ["heartbeat"], "number": 1},
        {"kind": "heartbeat", "number": -1},
        {"kind": "heartbeat", "number": 1e9},
        {"kind": "heartbeat"},
        {"kind": "section", "number": 1, "selected": ["x" * 400]},
        {"kind": "section", "number": 1, "selected": ["unknown"]},
        {"kind": "section", "number": 1, "selected": {"a": 1}},
        {"kind": "section", "number": 1, "selected": [["a"]]},
    ],
)
def test_a_request_to_learn_nonsense_ends_its_connection(
    make_agent: MakeAgent, asked: dict[str, Any]
) -> None:
    agent = make_agent()
    with watched(agent, 1) as (raw, _):
        raw.send({"type": "calculate", "id": 1, **asked})
        assert raw.answers()[-1]["type"] == "refused"
    assert agent.server.rejections.counts == {"field": 1}


def longest(page: BeatPage, row: int, ns: int) -> None:
    """Claim an interval: 0, 1 and 2 are until the first heartbeat, between two, and outside."""
    cells = page._cells
    at = 16 + len(page.sections) + row * 2 * _ROW + min(ns.bit_length(), _ROW - 1)
    cells[at] += 1
    cells[at + _ROW] = ns


@pytest.mark.parametrize("ns", [-1, 2**62, 10**15])
def test_a_bad_page_is_blamed_on_its_rank_and_not_on_who_asks(
    make_agent: MakeAgent, make_client: MakeClient, ns: int
) -> None:
    """Found by attack: the rank that asked was refused, and all went on with the timeouts before.
    An interval that is longer than its page has existed is none."""
    agent = make_agent(workload_check_interval=600.0)
    client = make_client(0)
    client.send_heartbeat()
    client.send_heartbeat()
    with watched(agent, 1) as (_, page):
        beat_twice(page)
        longest(page, 1, ns)
        assert client.calculate_and_set_hb_timeouts()
        assert list(agent.server.ranks) == [0]
        assert agent.server.rejections.counts == {"page": 1}
        assert client.hb_timeouts is not None
        assert client.hb_timeouts.subsequent == 600.0


def test_a_rank_whose_own_page_is_bad_gets_no_answer_and_is_watched_no_longer(
    make_agent: MakeAgent,
) -> None:
    agent = make_agent()
    with watched(agent, 1) as (raw, page):
        beat_twice(page)
        longest(page, 1, 2**62)
        raw.send({**ASK, "number": 1})
        assert raw.answer()["type"] == "not_ready"
        assert agent.server.ranks == {}


@pytest.mark.parametrize(
    "own",
    [
        {"section": {"section": {"step": 0.001}, "calculated_sections": ["step"]}},
        {"section": {"section": {"step": 1e300}, "calculated_sections": ["step"]}},
        {"section": {"section": {"step": None, "other": 1.0}}},
        {"section": {"section": {}, "out_of_section": 1e-9, "is_out_of_section_calculated": True}},
        {"heartbeat": {"initial": 1e-9, "subsequent": 1e-9, "were_calculated": True}},
    ],
)
@pytest.mark.parametrize("selected", [None, []])
def test_what_a_rank_says_of_its_own_timeouts_concerns_no_other(
    make_agent: MakeAgent, make_client: MakeClient, own: dict[str, Any], selected: Any
) -> None:
    """It asked first, and its answer was that of all ranks, its own timeouts included."""
    agent = make_agent(rank_section_timeouts={"step": 600.0}, workload_check_interval=600.0)
    client = make_client(0)
    client.send_heartbeat()
    client.send_heartbeat()
    client.start_section("step")
    client.end_section("step")
    with watched(agent, 1, ["step"]) as (raw, page):
        beat_twice(page)
        page.open("step")
        page.close("step")
        raw.send({"type": "timeouts", **own})
        for kind in ("heartbeat", "section"):
            asked = {"kind": kind, "selected": selected, "out_of_section": True, "number": 1}
            raw.send({"type": "calculate", "id": 1, **asked})
            raw.answer()
        assert client.calculate_and_set_hb_timeouts()
        assert client.calculate_and_set_section_timeouts(selected)
    assert client.section_timeouts is not None
    assert client.hb_timeouts is not None
    assert dict(client.section_timeouts.section) == {"step": 600.0}
    assert client.section_timeouts.out_of_section == 600.0
    assert client.hb_timeouts.subsequent == 600.0


def test_no_claimed_interval_hides_a_hang_for_longer_than_a_day(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.monotonic_ns()
    monkeypatch.setattr("otel_straggler.agent.beats.monotonic_ns", lambda: now_ns + 10**15)
    agent = make_agent()
    with watched(agent, 1) as (raw, page):
        page._cells[2] = 1  # the machine has run for days, the page says that it has, too
        beat_twice(page)
        longest(page, 1, 10**15)
        raw.send({**ASK, "number": 1})
        eventually(lambda: agent.server.ranks[1].heartbeat.were_calculated)
        assert agent.server.ranks[1].heartbeat.subsequent == MAX_LEARNED_S


# --- messages ------------------------------------------------------------------------------------

HUGE = int("9" * 4_000)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"type": "timeouts", "heartbeat": {"initial": HUGE}}, "timeouts"),
        ({"type": "timeouts", "heartbeat": {"initial": math.nan}}, "timeouts"),
        ({"type": "timeouts", "section": {"section": {"a": math.inf}}}, "timeouts"),
        ({"type": "timeouts", "section": {"section": {str(n): 1 for n in range(300)}}}, "timeouts"),
        ({"type": "calculate", "number": HUGE, "kind": "heartbeat", "id": 1}, "field"),
        ({"type": "calculate", "number": 1, "kind": "heartbeat", "id": HUGE}, "field"),
        (framed(b'{"type": "bye", "x": ' + b"9" * 5_000 + b"}"), "json"),
        ({**WATCH}, "order"),
        ({"type": "type\n2026-01-01 ERROR"}, "type"),
        ({"type": "diagnosed", "stacks": {"a": 1}}, None),
    ],
)
def test_a_message_of_a_rank_that_makes_no_sense_ends_its_connection_and_no_more(
    make_agent: MakeAgent, message: Any, reason: str | None
) -> None:
    """The agent goes on, and watches the rank."""
    agent = make_agent()
    with watched(agent, 1) as (raw, _):
        raw.send(message)
        if reason is None:
            raw.send({**ASK, "number": 1})
            assert raw.answer()["type"] == "not_ready"
        else:
            assert raw.answers()[-1]["why"].startswith(reason)
            assert agent.server.rejections.counts == {reason: 1}
        assert 1 in agent.server.ranks


def test_what_nobody_thought_of_ends_its_connection_alone(
    make_agent: MakeAgent, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent()
    client = make_client(0)
    with watched(agent, 1) as (raw, _):
        monkeypatch.setattr(agent_server, "read_heartbeat", lambda _: 1 / 0)
        raw.send({"type": "timeouts", "heartbeat": {}})
        assert raw.answers()[-1]["why"].startswith("unexpected: ZeroDivisionError")
    monkeypatch.undo()
    client.send_heartbeat()
    client.send_heartbeat()
    assert client.calculate_and_set_hb_timeouts()


def test_a_rank_that_cannot_be_checked_keeps_no_other_from_it(
    make_agent: MakeAgent,
    make_client: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = make_agent(rank_heartbeat_timeout=0.1)
    with watched(agent, 1):
        monkeypatch.setattr(agent.server.ranks[1].reader, "beats", lambda: 1 / 0)
        make_client(2).send_heartbeat()
        eventually(lambda: [hang["rank"] for hang in agent.hangs] == [2])
        assert "rank 1" in caplog.text
        assert "could not be checked now; it is watched on" in caplog.text


@pytest.mark.parametrize("kind", ["disk", "device"])
def test_a_page_is_memory_and_no_file_that_could_be_slow(
    make_agent: MakeAgent, tmp_path: Path, kind: str
) -> None:
    """A file of a network that has gone would stop the agent."""
    agent = make_agent()
    page = BeatPage([])
    raw = Raw(agent)
    memory = Path("/dev/shm").stat().st_dev
    path = (Path("/var/tmp") if tmp_path.stat().st_dev == memory else tmp_path) / f"{os.getpid()}"
    path.write_bytes(os.pread(page.file, 100_000, 0))
    with (path if kind == "disk" else Path("/dev/zero")).open("rb") as file:
        raw.send(INIT, WATCH, file=file.fileno())
        assert raw.answers()[-1]["why"].startswith("page")
    path.unlink(missing_ok=True)
    page.end()


# --- places --------------------------------------------------------------------------------------


def test_a_thousand_silent_connections_keep_no_rank_out(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent()
    before = make_client(0)
    held = [Raw(agent) for _ in range(1_000)]
    make_client(1)
    assert {0, 1} <= set(agent.server.ranks)
    assert len(agent.server._connections) <= agent_server.MAX_VISITORS + 2
    before.send_heartbeat()
    before.send_heartbeat()
    assert before.calculate_and_set_hb_timeouts(), "a rank's connection is nobody's to take"
    for raw in held:
        raw.socket.close()


@pytest.mark.parametrize("reason", ["connections", "full", "silent"])
def test_a_rank_that_is_refused_for_now_connects_again(
    make_agent: MakeAgent, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    real, refusals = AgentServer._init, iter([ProtocolError(reason, "for now")] * 2)

    def init(self: AgentServer, connection: Connection, message: Message) -> None:
        for refusal in refusals:
            raise refusal
        real(self, connection, message)

    monkeypatch.setattr(AgentServer, "_init", init)
    agent = make_agent()
    make_client(4)
    assert agent.server.rejections.counts == {reason: 2}
    assert list(agent.server.ranks) == [4]


@pytest.mark.parametrize(
    "trouble",
    [
        lambda raw: raw.socket.close(),
        lambda raw: raw.socket.shutdown(socket.SHUT_WR),
        lambda raw: raw.socket.shutdown(socket.SHUT_RD),
        lambda raw: raw.socket.sendall(encode(INIT)[:-1]),
        lambda raw: raw.send(INIT),
        lambda raw: raw.send(INIT, {"type": "bye"}),
        lambda raw: raw.socket.sendall(struct.pack(">I", 65_536)),
    ],
    ids=["closed", "half-open", "deaf", "half-said", "known", "bye", "giant"],
)
def test_connections_that_come_to_nothing_leave_nothing(
    make_agent: MakeAgent,
    make_client: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[Raw], None],
) -> None:
    monkeypatch.setattr(agent_server, "INIT_S", 0.3)
    agent = make_agent()
    files = open_files()
    raws = [Raw(agent) for _ in range(20)]
    for raw in raws:
        with contextlib.suppress(OSError):
            trouble(raw)
    make_client(0)
    eventually(lambda: len(agent.server._connections) == 1)
    for raw in raws:
        raw.socket.close()
    eventually(lambda: open_files() <= files + 12)
    assert list(agent.server.ranks) == [0]


def test_one_connection_watches_one_rank_and_there_are_not_arbitrarily_many(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank stays watched when its connection is lost, so connections do not bound ranks."""
    monkeypatch.setattr(agent_server, "MAX_RANKS", 5)
    agent = make_agent()
    page = BeatPage([])
    for rank in range(8):
        raw = Raw(agent)
        raw.send({**INIT, "rank": rank}, WATCH, file=page.file)
        last = b""
        while b"ok" not in last and b"refused" not in last:
            last = raw.socket.recv(65_536)
        assert (b"ranks: 5 are watched already" in last) == (rank >= 5)
        raw.socket.close()
    eventually(lambda: not agent.server._connections)
    page.end()


def test_an_agent_without_descriptors_goes_on(
    make_agent: MakeAgent, make_client: MakeClient
) -> None:
    agent = make_agent()
    client = make_client(0)
    raws = [Raw(agent) for _ in range(5)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files(), hard))
    try:
        for one in waiting:
            one.connect(str(agent.folder / "agent.sock"))
        eventually(lambda: agent.server.rejections.counts["full"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    client.send_heartbeat()
    client.send_heartbeat()
    assert client.calculate_and_set_hb_timeouts()
    for each in (*waiting, *(raw.socket for raw in raws)):
        each.close()


# --- the log -------------------------------------------------------------------------------------

FORGED = "x\n2026-01-01 00:00:00,000 otel-straggler agent ERROR RANK HANG: rank 0"


@pytest.mark.parametrize("text", [
    FORGED, "a\rb", "a\x1b[2Kb", "a\x85b", "a\u2028b", "a\u202eb", "a\x00b", "a\ud800b",
])  # fmt: skip
def test_outside_text_is_one_line_of_a_log(text: str) -> None:
    record = logging.makeLogRecord({"levelname": "INFO", "msg": "it says %s", "args": (text,)})
    line = TextLines("agent").format(record)
    assert line.isprintable()
    assert line.endswith(one_line(text))
    try:
        raise ValueError(text)
    except ValueError as error:
        record.exc_info = type(error), error, error.__traceback__
    head, *below = TextLines("agent").format(record).splitlines()
    assert all(each.startswith("    ") and each.isprintable() for each in below)
    assert head == line


@pytest.mark.parametrize(
    ("init", "watch", "diagnosed"),
    [
        ({"run_id": FORGED}, {}, {}),
        ({}, {"sections": [FORGED]}, {}),
        ({}, {"stacks": FORGED, "stacks_signal": 0}, {}),
        ({}, {}, {"stacks": FORGED}),
        ({}, {}, {"stacks_error": FORGED}),
        ({}, {}, {"collective": FORGED}),
        ({"rank": FORGED}, {}, {}),
        ({"version": FORGED}, {}, {}),
    ],
)
def test_no_rank_writes_lines_of_the_agents_log(
    make_agent: MakeAgent,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    init: dict[str, Any],
    watch: dict[str, Any],
    diagnosed: dict[str, Any],
) -> None:
    caplog.handler.setFormatter(TextLines("otel-straggler agent"))
    monkeypatch.setattr("otel_straggler.agent.episodes.STACKS_S", 1.0)
    agent = make_agent(rank_heartbeat_timeout=0.05)
    raw, page = Raw(agent), BeatPage(watch.get("sections", []))
    for name in page.sections:
        page.open(name)
    page.beat()
    raw.send({**INIT, **init}, {**WATCH, **watch, "heartbeat": {"subsequent": 0.05}},
             file=page.file)  # fmt: skip
    with contextlib.suppress(OSError, AssertionError):
        while raw.answer()["type"] != "diagnose":
            pass
        raw.send({"type": "diagnosed", "part": "collective", **diagnosed})
    eventually(lambda: "RANK HANG" in caplog.text or agent.server.rejections.counts)
    starts = [line[:2] for line in caplog.text.splitlines()]
    assert set(starts) == {"20"}, "each line begins with its own time"
    assert "\n2026-01-01 00:00:00,000" not in caplog.text
    raw.socket.close()
    page.end()


# --- very many -----------------------------------------------------------------------------------


def seeds(page: BeatPage) -> list[bytes]:
    """Frames that make sense, to be damaged."""
    timeouts = {
        "heartbeat": {"initial": 600.5, "subsequent": 700.5, "were_calculated": True},
        "section": {"section": {"step": 800.5}, "calculated_sections": ["step"]},
    }
    watch = {
        **WATCH,
        **timeouts,
        "sections": list(page.sections),
        "stacks": "/x",
        "stacks_signal": 0,
    }
    return [
        encode(message)
        for message in (
            INIT, watch, {"type": "timeouts", **timeouts}, {**ASK, "number": 3},
            {"type": "calculate", "kind": "section", "selected": ["step"], "out_of_section": True,
             "number": 7, "id": 2},
            {"type": "diagnosed", "part": "stacks", "stacks": "/x", "step": 5, "open": ["step"]},
            {"type": "diagnosed", "part": "collective", "collective": "all_reduce"},
            {"type": "bye"},
        )
    ]  # fmt: skip


VALUES = ["", "x" * 300, "\n", "\ud800", -1, 0, 2**31, 2**63, 10**400, 1.5, math.nan, math.inf,
          None, True, [], {}, [[]], ["a", "a"], {"a": "b"}, {"step": 1e-9}, "section"]  # fmt: skip


def damaged(seed: bytes, dice: random.Random) -> bytes:
    """One frame with bytes, fields, values or its length changed."""
    kind = dice.randrange(5)
    if kind == 0:
        data = bytearray(seed)
        for _ in range(dice.randrange(1, 8)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        return bytes(data)
    if kind == 1:
        return seed[: dice.randrange(len(seed))]
    message = json.loads(seed[4:])
    if kind == 2:
        del message[dice.choice(list(message))]
    else:
        keys = [*message, "selected", "out_of_section", "kind", "number", "id", "sections"]
        for _ in range(dice.randrange(1, 3)):
            message[dice.choice(keys)] = dice.choice(VALUES)
    return framed(json.dumps(message).encode())


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_very_many_hostile_frames_leave_an_agent_as_it_was(
    make_agent: MakeAgent, make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """100,000 in the long dose. An honest rank is watched all the time, memory stays flat, and the
    log has neither a traceback nor a line for each."""
    dice = random.Random(37)
    agent = make_agent(rank_section_timeouts={"step": None}, workload_check_interval=0.2)
    client = make_client(0)
    page = BeatPage(["step"])
    good = seeds(page)
    early_mib, files = 0.0, open_files()
    for number in range(FRAMES):
        raw = Raw(agent)
        frames = [*good[:2], *(dice.choice(good[2:-1]) for _ in range(dice.randrange(3)))]
        frames = [*frames[: dice.choice((0, 1, 2, 4))], damaged(dice.choice(good), dice)]
        with contextlib.suppress(OSError):
            socket.send_fds(raw.socket, [b"".join(frames)], [page.file])
            raw.socket.shutdown(socket.SHUT_WR)
        raw.answers()
        early_mib = early_mib or (resident_mib() if number > FRAMES / 4 else 0.0)
        client.send_heartbeat()
    eventually(lambda: len(agent.server._connections) == 1)
    assert client.calculate_and_set_hb_timeouts()
    assert "unexpected" not in agent.server.rejections.counts
    assert 0 in agent.server.ranks
    assert resident_mib() < early_mib + 20
    assert open_files() < files + 3 * agent_server.MAX_VISITORS
    assert "Traceback" not in caplog.text
    assert len(caplog.records) < 300 + 2 * agent_server.MAX_RANKS
    mib = f"{early_mib:.0f} MiB after a quarter, {resident_mib():.0f} MiB at the end"
    counts = dict(agent.server.rejections.counts)
    print(f"{FRAMES} frames: {counts}, {len(caplog.records)} lines of the log, {mib}")
    page.end()
