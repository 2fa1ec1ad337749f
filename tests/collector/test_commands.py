"""Ranks are asked for something over a live collector; only by who may, and only the right ones."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.collector.api.commands import MAX_WAITING, Asked, Commands
from otel_straggler.collector.settings import CommandsSettings
from otel_straggler.collector.settings_file import load_settings, with_token
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import LOST, STUCK, Blame
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.model.rank import Source

TOKEN = "s3cret"
JSON = {"Content-Type": "application/json"}
ON = CommandsSettings(enabled=True, token=TOKEN)


@pytest.fixture
def live(start: Any, kit: Any) -> Any:
    """A collector that knows rank 0 and rank 1 of a run."""
    running = start(commands__enabled=True, commands__token=TOKEN)
    for number in (0, 1):
        beat = kit.beat_of(kit.rank(number), sent_at_s=2.0, step=3, progress_at_s=1.0)
        assert running.post(beat, "metrics").status == 200
    kit.eventually(lambda: _ranks(running) == [0, 1])
    return running


def _ranks(running: Any) -> list[int]:
    view = running.collector._worker.snapshot.runs.get("run")
    return [] if view is None else list(view.live_ranks(""))


@pytest.fixture
def ask(kit: Any) -> Any:
    """A person's request."""

    def ask(live: Any, token: str | None = TOKEN, **changes: Any) -> Any:
        asked = {"verb": "dump_stacks", "run": "run", "ranks": [1], **changes}
        headers = JSON if token is None else {**JSON, semconv.COMMANDS_TOKEN_HEADER: token}
        body = json.dumps({k: v for k, v in asked.items() if v is not None}).encode()
        return kit.ask(live.addresses["metrics"], "POST", "/v1/commands", body, headers)

    return ask


@pytest.fixture
def poll(kit: Any) -> Any:
    """A rank's request."""

    def poll(live: Any, number: int = 1, token: str | None = TOKEN, **changes: str) -> Any:
        me = kit.rank(number)
        asked = {"run": "run", "group": "", "rank": str(number), "session": me.session_id,
                 "node": me.node, **changes}  # fmt: skip
        headers = {} if token is None else {semconv.COMMANDS_TOKEN_HEADER: token}
        path = f"/v1/commands?{urlencode(asked)}"
        return kit.ask(live.addresses["otlp_http"], "GET", path, None, headers)

    return poll


def wanted(answer: Any) -> list[str]:
    assert answer.status == 200, answer
    return [command["verb"] for command in answer.json()["commands"]]


def test_a_rank_is_told_what_is_wanted_of_it_until_it_says_what_came_of_it(
    live: Any, ask: Any, poll: Any, kit: Any
) -> None:
    """An answer that got lost is given again; the rank itself does it once."""
    assert wanted(poll(live)) == []
    (asked,) = ask(live).json()["commands"]
    assert asked["rank"] == 1
    assert wanted(poll(live)) == wanted(poll(live)) == ["dump_stacks"]
    assert wanted(poll(live, done=f"{asked['id']}:done")) == []
    headers = {semconv.COMMANDS_TOKEN_HEADER: TOKEN}
    reported = live.get(f"/v1/commands?ids={asked['id']},unknown", headers).json()
    assert reported == {"outcomes": {asked["id"]: "done"}}
    assert live.value(semconv.COLLECTOR_COMMANDS, verb="dump_stacks", outcome="done") == 1
    assert live.value(semconv.COLLECTOR_COMMANDS, verb="dump_stacks", outcome="asked") == 1


@pytest.mark.parametrize("why", sorted(semconv.REFUSALS))
def test_who_asked_is_told_why_a_rank_refuses(live: Any, ask: Any, poll: Any, why: str) -> None:
    """By a code of a closed list; of anything else nothing is said."""
    (asked,) = ask(live).json()["commands"]
    assert wanted(poll(live, done=f"{asked['id']}:refused", why=f"{asked['id']}:{why}")) == []
    headers = {semconv.COMMANDS_TOKEN_HEADER: TOKEN}
    reported = live.get(f"/v1/commands?ids={asked['id']}", headers).json()
    assert reported["outcomes"] == {asked["id"]: "refused"}
    assert reported["why"] == {asked["id"]: semconv.REFUSALS[why]}
    assert live.value(semconv.COLLECTOR_COMMANDS, verb="dump_stacks", outcome="refused") == 1


@pytest.mark.parametrize("why", ["", ":", ",,,", "x", "{id}", "{id}:", "{id}:<b>", "{id}:limit:x"])
def test_a_reason_that_is_none_is_left_out(live: Any, ask: Any, poll: Any, why: str) -> None:
    (asked,) = ask(live).json()["commands"]
    given = why.replace("{id}", asked["id"])
    assert wanted(poll(live, done=f"{asked['id']}:refused", why=given)) == []
    headers = {semconv.COMMANDS_TOKEN_HEADER: TOKEN}
    reported = live.get(f"/v1/commands?ids={asked['id']}", headers).json()
    assert reported == {"outcomes": {asked["id"]: "refused"}}


STRANGERS: list[tuple[int, dict[str, str]]] = [
    (0, {}),
    (1, {"session": "f" * 16}),
    (1, {"node": "elsewhere"}),
    (1, {"run": "other"}),
    (1, {"group": "critic"}),
    (1, {"rank": "one"}),
    (1, {"rank": "-1"}),
    (1, {"rank": "9" * 40}),
]


def test_nobody_else_is_told(live: Any, ask: Any, poll: Any) -> None:
    """Another rank, a process that is over, another host, rubbish; whoever asks, the right one is
    told afterwards."""
    assert ask(live).status == 200
    for rank, changes in STRANGERS:
        assert wanted(poll(live, rank, **changes)) == [], changes
        assert wanted(poll(live)) == ["dump_stacks"], changes


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 403), ("", 403)])
def test_without_the_token_nobody_asks(
    live: Any, ask: Any, poll: Any, token: str | None, status: int, caplog: Any
) -> None:
    """Neither a rank nor a person; it is logged once, not with every request."""
    assert ask(live).status == 200
    with caplog.at_level(logging.WARNING):
        assert [poll(live, token=token).status for _ in range(3)] == [status] * 3
        assert [ask(live, token=token).status for _ in range(3)] == [status] * 3
    assert live.get("/v1/commands?ids=a").status == 401
    printed = [text for text in caplog.messages if "is refused" in text]
    assert len(printed) <= 2
    assert wanted(poll(live)) == ["dump_stacks"]


NO_COMMANDS: list[dict[str, Any]] = [
    {"verb": "run_shell"},
    {"verb": 7},
    {"run": "other"},
    {"ranks": [7]},
    {"ranks": []},
    {"ranks": [True]},
    {"ranks": "1"},
    {"run": None},
]


def test_what_is_no_command_is_refused_in_a_sentence(live: Any, ask: Any, poll: Any) -> None:
    """The list of verbs is closed."""
    for changes in NO_COMMANDS:
        answer = ask(live, **changes)
        assert answer.status == 400, changes
        assert "expected" in answer.json()["error"], changes
        assert wanted(poll(live)) == [], changes


def test_all_ranks_can_be_asked_at_once(live: Any, ask: Any, poll: Any) -> None:
    """Where no rank is named."""
    assert [c["rank"] for c in ask(live, ranks=None).json()["commands"]] == [0, 1]
    assert wanted(poll(live, 0)) == wanted(poll(live, 1)) == ["dump_stacks"]


def test_a_foreign_page_cannot_ask(live: Any, kit: Any) -> None:
    """No browser sends JSON to another origin unasked."""
    headers = {"Content-Type": "text/plain", semconv.COMMANDS_TOKEN_HEADER: TOKEN}
    answer = kit.ask(live.addresses["metrics"], "POST", "/v1/commands", b"{}", headers)
    assert answer.status == 415
    assert kit.ask(live.addresses["otlp_http"], "POST", "/v1/commands", b"{}").status == 415
    assert kit.ask(live.addresses["otlp_http"], "PUT", "/v1/commands", b"{}").status == 405


def test_where_commands_are_off_there_is_no_such_path(start: Any, ask: Any, poll: Any) -> None:
    """As if they did not exist."""
    running = start()
    assert poll(running).status == ask(running).status == 404


def test_a_rank_that_ended_is_not_asked(live: Any, ask: Any, poll: Any, kit: Any) -> None:
    """Nobody would answer."""
    end = kit.beat_of(kit.rank(1), sent_at_s=3.0, finished_at_s=3.0, outcome="ok")
    assert live.post(end, "metrics").status == 200
    kit.eventually(lambda: ask(live).status == 400)


# --- the book alone --------------------------------------------------------------------------


def source(rank: int) -> Source:
    return Source(run_id="r", rank=rank, session_id=f"{rank:016x}", node="n")


class Time:
    now_s = 0.0


def book(**changes: Any) -> Commands:
    settings = CommandsSettings(enabled=True, token=TOKEN, **changes)
    return commands_for(settings, source)


def commands_for(settings: CommandsSettings, newest: Callable[[int], Source]) -> Commands:
    """A book that knows these sessions."""
    commands = Commands(settings, lambda: Time.now_s)
    commands.snapshot = Mock(source_of=lambda _run, _group, rank: newest(rank))
    return commands


def test_a_command_that_nobody_fetches_expires() -> None:
    """And is not given to whoever comes later."""
    Time.now_s = 0.0
    commands = book(expire_seconds=10.0)
    (id_,) = commands.ask("r", "", [3], "dump_stacks", "test")
    assert commands.outcomes([id_]) == {id_: "waiting"}
    Time.now_s = 10.0
    query = urlencode({"run": "r", "rank": 3, "session": source(3).session_id, "node": "n"})
    assert json.loads(commands.poll(query)) == {"commands": []}
    assert commands.outcomes([id_]) == {id_: "expired"}
    assert commands.counts() == {("dump_stacks", "asked"): 1, ("dump_stacks", "expired"): 1}


def test_a_process_that_was_replaced_is_given_nothing_and_can_tell_nothing() -> None:
    """It may still live, on another node; what was wanted of it is wanted no more."""
    newest = [source(3)]
    settings = CommandsSettings(enabled=True, token=TOKEN)
    Time.now_s = 0.0
    commands = commands_for(settings, lambda _: newest[0])
    (id_,) = commands.ask("r", "", [3], "dump_stacks", "test")
    old = {"run": "r", "rank": 3, "session": newest[0].session_id, "node": "n"}
    newest[0] = Source(run_id="r", rank=3, session_id="b" * 16, node="n")
    new = {**old, "session": "b" * 16}
    for asks in ({**old, "done": f"{id_}:done"}, {**new, "done": f"{id_}:done"}):
        assert json.loads(commands.poll(urlencode(asks))) == {"commands": []}
    assert commands.outcomes([id_]) == {id_: "waiting"}


def stuck(culprits: range, victims: range, lost: range = range(0)) -> HangStatus:
    ranks = np.arange(60)
    states = np.where(np.isin(ranks, lost), LOST, STUCK).astype(np.int32)
    blame = Blame("never_joined", np.isin(ranks, culprits), np.isin(ranks, victims))
    nothing = np.zeros(60)
    return HangStatus(
        state="stuck", since_s=0.0, ranks=ranks, rank_states=states, rank_since_s=nothing,
        timeout_s=nothing, blame=blame,
    )  # fmt: skip


def asked_of(commands: Commands) -> list[int]:
    return [command.key[2] for command in commands._waiting.values()]


def test_a_stuck_run_has_its_culprits_asked_and_three_that_wait() -> None:
    """Once in an episode, whoever is dead is left out, and anew in the next one."""
    commands, asked = book(on_hang=("dump_stacks",)), Asked()
    result = stuck(culprits=range(2), victims=range(2, 60), lost=range(1))
    for _ in range(3):
        commands.ask_hung("r", "", result, asked)
    assert asked_of(commands) == [1, 2, 3, 4]
    commands.ask_hung("r", "", replace(result, blame=None), asked)
    commands.ask_hung("r", "", result, asked)
    assert asked_of(commands) == [1, 2, 3, 4] * 2
    many, asked = book(on_hang=("dump_stacks",)), Asked()
    for first in range(0, 60, 10):
        many.ask_hung("r", "", stuck(range(first, 60), range(first)), asked)
    assert len(asked_of(many)) == 23
    silent = book(on_hang=())
    silent.ask_hung("r", "", result, Asked())
    assert asked_of(silent) == []


def test_a_stuck_run_has_all_its_ranks_asked_for_flight_records() -> None:
    """Unless told otherwise; the culprits first, nobody who is lost, once in an episode."""
    commands, asked = book(), Asked()
    result = stuck(culprits=range(50, 52), victims=range(3, 50), lost=range(1))
    for _ in range(3):
        commands.ask_hung("r", "", result, asked)
    assert asked_of(commands) == [50, 51, *range(3, 50), 1, 2, *range(52, 60)]
    commands.ask_hung("r", "", replace(result, blame=None), asked)
    assert asked == {}


def test_the_queue_is_bounded() -> None:
    """Whoever asks for more is told to wait."""
    commands = book()
    commands.ask("r", "", range(MAX_WAITING), "dump_stacks", "test")
    with pytest.raises(InputError, match="room for more"):
        commands.ask("r", "", [0], "dump_stacks", "test")


def test_commands_need_a_token(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the file or the environment; it is not shown in the error."""
    file = tmp_path / "c.yaml"
    file.write_text("commands: {enabled: true}")
    monkeypatch.delenv("OTEL_STRAGGLER_COMMANDS_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="OTEL_STRAGGLER_COMMANDS_TOKEN"):
        load_settings(file, {})
    monkeypatch.setenv("OTEL_STRAGGLER_COMMANDS_TOKEN", "of-the-environment")
    assert load_settings(file, {}).commands.token == "of-the-environment"
    with pytest.raises(ConfigError) as refused:
        with_token(CommandsSettings(enabled=True, token="bad token"), "x", {})
    assert "bad token" not in str(refused.value)
    file.write_text("commands: {on_hang: [reboot]}")
    with pytest.raises(ConfigError, match="a list of dump_stacks, dump_flight_record"):
        load_settings(file, {})
