"""A collector that asks on and on, and one that means harm: a rank does so much in an hour and no
more, whoever asks, says why, and keeps on training."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from otel_straggler.cli import main
from otel_straggler.client.diagnostics.commands import Allowance, Command, CommandPoll
from otel_straggler.client.diagnostics.profiles import AskedProfile
from otel_straggler.client.diagnostics.stacks import MAX_BYTES, MAX_DUMPS, StacksFile
from otel_straggler.client.settings import resolve_settings
from otel_straggler.model.diagnostics import SUFFIX, StacksHead
from otel_straggler.otlp.clients.client import Response
from otel_straggler.semconv import (
    COMMANDS_PER_HOUR,
    DUMP_FLIGHT_RECORD,
    DUMP_STACKS,
    MAX_PROFILED_STEPS,
    PROFILE,
    REFUSALS,
    VERBS,
)

ON = {"endpoint": "http://127.0.0.1:9", "run_id": "r", "rank": 0}


class Rogue:
    """A collector that asks for the same again and again, each time as another command."""

    url = "http://rogue/v1/commands"

    def __init__(self, *verbs: str, each: int = 16, **more: Any) -> None:
        self._verbs, self._each, self._more = verbs, each, more
        self._asked = 0
        self.verb_of: dict[str, str] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.whys: Counter[tuple[str, str]] = Counter()

    def get(self, query: str) -> Response:
        return self.send("GET", None, query=query)

    def send(self, _method: str, _body: bytes | None, *, query: str, **_: Any) -> Response:
        given = parse_qs(query)
        for name, counted in (("done", self.outcomes), ("why", self.whys)):
            for one in filter(None, given.get(name, [""])[0].split(",")):
                id_, _, said = one.partition(":")
                counted[self.verb_of[id_], said] += 1
        commands = []
        for _ in range(self._each):
            self._asked += 1
            verb = self._verbs[self._asked % len(self._verbs)]
            self.verb_of[f"c{self._asked}"] = verb
            commands.append({"id": f"c{self._asked}", "verb": verb, **self._more})
        return Response(200, body=json.dumps({"commands": commands}).encode())

    def close(self) -> None: ...


class Rank:
    """What a rank did."""

    def __init__(self, collector: Rogue) -> None:
        self.now_s = 0.0
        self.done: Counter[str] = Counter()
        verbs = {verb: self._doing(verb) for verb in VERBS}
        allowance = Allowance(lambda: self.now_s)
        self.poll = CommandPoll(resolve_settings(ON), lambda: "session", verbs, allowance)
        self.poll._client.close()
        self.poll._client = collector  # type: ignore[assignment]

    def _doing(self, verb: str) -> Any:
        def do(_: Command) -> None:
            self.done[verb] += 1

        return do

    def live(self, hours: float, every_s: float = 5.0) -> None:
        for _ in range(int(hours * 3_600.0 / every_s)):
            self.poll.poll()
            self.now_s += every_s


@pytest.mark.parametrize("verb", VERBS)
def test_a_rank_does_in_an_hour_what_is_stated_and_no_more(verb: str) -> None:
    """11,520 commands an hour are asked for; every refusal is told, with its reason."""
    rogue = Rogue(verb)
    rank = Rank(rogue)
    rank.live(hours=1.0)
    limit = COMMANDS_PER_HOUR[verb]
    assert rank.done == {verb: limit}
    rank.poll.poll()
    refused = rogue.outcomes[verb, "refused"]
    assert (rogue.outcomes[verb, "done"], refused) == (limit, 720 * 16 - limit)
    assert rogue.whys == {(verb, "limit"): refused}


def test_the_next_hour_has_as_much_again_and_no_hour_has_more() -> None:
    rank = Rank(Rogue(DUMP_STACKS, each=1))
    rank.live(hours=3.0)
    assert rank.done[DUMP_STACKS] == 3 * COMMANDS_PER_HOUR[DUMP_STACKS]


def test_one_verb_does_not_take_the_room_of_another() -> None:
    """A flood of profiles leaves stacks and flight records of a hang possible."""
    rank = Rank(Rogue(PROFILE, PROFILE, PROFILE, DUMP_STACKS, DUMP_FLIGHT_RECORD))
    rank.live(hours=1.0)
    assert rank.done == COMMANDS_PER_HOUR


def test_many_refusals_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The 1st, 10th, 100th, 1,000th, with the reason."""
    caplog.set_level(logging.WARNING, "otel_straggler")
    rank = Rank(Rogue("run_shell", PROFILE))
    rank.live(hours=1.0)
    lines = [text for text in caplog.messages if "is refused" in text]
    assert len(lines) == 8
    assert lines[-1].endswith("(1000 so far)")
    assert all(REFUSALS["unknown"] in line or REFUSALS["limit"] in line for line in lines)
    assert len(caplog.messages) == 8 + COMMANDS_PER_HOUR[PROFILE]


class Never(AskedProfile):
    """A profile whose steps do not end."""

    def __init__(self) -> None:
        self.is_given_up = False

    def answer(self) -> None:
        return None

    def give_up(self, why: str = "") -> None:
        self.is_given_up = bool(why) or True


def test_a_rank_makes_one_profile_at_a_time() -> None:
    rogue = Rogue(PROFILE)
    rank = Rank(rogue)
    begun: list[Never] = []

    def begin(_: Command) -> Never:
        begun.append(Never())
        return begun[-1]

    rank.poll._verbs = {PROFILE: begin}
    rank.live(hours=0.25)
    assert len(begun) == 1
    assert rogue.whys.keys() == {(PROFILE, "busy")}


@pytest.mark.parametrize("steps", [MAX_PROFILED_STEPS + 1, 1_000])
def test_a_profile_of_many_steps_is_refused(steps: int) -> None:
    """Their events would fill the memory of the training."""
    rogue = Rogue(PROFILE, steps=steps)
    rank = Rank(rogue)
    rank.live(hours=0.01)
    assert rank.done == {}
    assert rogue.whys.keys() == {(PROFILE, "steps")}


@pytest.mark.parametrize(
    "more",
    [{"steps": 10**400}, {"first_step": 10**400}, {"first_step": -1}, {"steps": 1.5},
     {"id": "x" * 65}, {"id": "a,b:done"}, {"id": "\N{SUPERSCRIPT TWO}"},
     {"verb": ["profile"]}, {"verb": None}],
)  # fmt: skip
def test_a_command_that_is_none_is_passed_over(more: dict[str, Any]) -> None:
    rogue = Rogue(PROFILE)
    rogue._more = more
    rank = Rank(rogue)
    rank.live(hours=0.01)
    assert rank.done == {}
    assert rogue.outcomes == {}


@pytest.mark.parametrize(
    "body", [b"9" * 5_000, b"[" * 1_000_000, b'{"commands":[{"steps":%s}]}' % (b"9" * 5_000)]
)
def test_an_answer_that_is_none_is_passed_over(body: bytes) -> None:
    rogue = Rogue(PROFILE)
    rogue.send = lambda *_, **__: Response(200, body=body)  # type: ignore[method-assign]
    rank = Rank(rogue)
    rank.live(hours=0.01)
    assert rank.done == {}


def test_who_asks_reads_why_a_rank_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of those that say it; of an older one what it has always been."""
    answers = iter(
        [
            {"commands": [{"id": "a", "rank": 3}, {"id": "b", "rank": 5}, {"id": "c", "rank": 6}]},
            {
                "outcomes": {"a": "refused", "b": "done", "c": "refused"},
                "why": {"a": f"{REFUSALS['limit']}\x1b[2J"},
            },
        ]
    )
    monkeypatch.setattr("otel_straggler.cli.hang._asked", lambda *_: next(answers))
    assert main(["hang", "ask", "--run", "r", "dump_stacks"]) == 0
    printed = capsys.readouterr().out
    assert f"Rank 3: refused: {REFUSALS['limit']}?[2J." in printed
    assert "Rank 5: done." in printed
    assert "Rank 6: refused: an older version, or OTEL_STRAGGLER_EVIDENCE_DIR" in printed


@pytest.fixture
def file(tmp_path: Path) -> Iterator[StacksFile]:
    result = StacksFile(tmp_path / f"rank{SUFFIX}")
    yield result
    result.close()


def test_stacks_take_two_files_however_often_they_are_asked_for(
    file: StacksFile, tmp_path: Path
) -> None:
    """Each of 32 dumps, and of 4 MiB and one dump at most."""
    head = StacksHead(
        run="r", group="", rank="0", node="n", pid="1", session="s", started="1", at="", why="w",
        main_thread="0x1", signal="",
    )  # fmt: skip
    for _ in range(10 * MAX_DUMPS):
        file.dump(head, head)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    assert all(each.stat().st_size < MAX_BYTES + 2**20 for each in files)
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in files)
