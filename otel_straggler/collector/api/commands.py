"""Commands for ranks, given by a person or because a run is stuck.

A command is for one session of one rank. Every poll of the rank returns it until the rank has
reported its outcome or it expires; the rank carries it out once. Flight records and operator
tables of profiles come with the outcome, in the body of the poll.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from otel_straggler.collector.api.command_answers import (
    COMMAND_REMEDY,
    parts_of,
    read_profile,
    read_record,
    wrong_command,
)
from otel_straggler.collector.ingest.http_messages import read_query
from otel_straggler.collector.settings import CommandsSettings
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import LOST, are_over
from otel_straggler.errors import InputError
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.model.json_body import JsonBody
from otel_straggler.model.operator_tables import OperatorTable
from otel_straggler.model.rank import Source
from otel_straggler.semconv import (
    COMMANDS_TOKEN_HEADER,
    DUMP_FLIGHT_RECORD,
    HANG_VERBS,
    PROFILE,
    REFUSALS,
    VERBS,
)
from otel_straggler.throttle import Throttle

POLLS: Final = "GET /v1/commands of the OTLP/HTTP port"
ASKS: Final = "/v1/commands of the metrics address"
_LOG_EVERY_S = 60.0
MAX_WAITING: Final = 4_096
MAX_REMEMBERED: Final = 8_192
MAX_CULPRITS: Final = 20
MAX_VICTIMS: Final = 3
MAX_RECORDED: Final = 1_024
"""Ranks of a hang that are asked for their flight records."""
PROFILE_EXPIRES_S: Final = 1_200.0
"""A profile has to wait for its steps, for at most 15 minutes on the rank."""
_WHY_NO_PROFILE: Final = {
    "failed": "the rank could not profile; see its log",
    "refused": "the rank refused; see its log",
    "expired": "the rank did not answer in time",
}
OUTCOMES: Final = ("done", "failed", "refused", "expired")
_REPORTED: Final = frozenset(OUTCOMES) - {"expired"}
_log = logging.getLogger(__name__)

Key = tuple[str, str, int]
"""Run, group, rank."""
Receive = Callable[[Key, FlightRecord | None, float], None]
"""Gets the flight record of a rank, or None if it has none, and its age in seconds."""
ReceiveProfile = Callable[[Key, OperatorTable | str], None]
"""Gets the operator table of a rank that was asked for one, or why there is none."""
Asked = dict[str, set[int]]
"""Ranks that were asked in a hang, by verb."""


class Steps(NamedTuple):
    """Steps to profile, from ``first`` on, or from the next if that has begun."""

    first: int
    n_steps: int


@dataclass(slots=True)
class _Command:
    """One verb for one session of a rank."""

    id: str
    verb: str
    key: Key
    session_id: str
    node: str
    expires_s: float
    steps: Steps | None = None
    outcome: str = "waiting"
    why: str = ""

    @property
    def json(self) -> dict[str, Any]:
        command: dict[str, Any] = {"id": self.id, "verb": self.verb}
        if self.steps is not None:
            command |= {"first_step": self.steps.first, "steps": self.steps.n_steps}
        return command


class Commands:
    """All commands. Thread-safe.

    Args:
        receive, receive_profile: called with flight records and profiles, in any thread.

    Attributes:
        snapshot: published last; has the current sessions.
    """

    def __init__(
        self,
        settings: CommandsSettings,
        monotonic_s: Callable[[], float] = time.monotonic,
        receive: Receive | None = None,
        receive_profile: ReceiveProfile | None = None,
    ) -> None:
        self.snapshot = Snapshot()
        self._receive_profile = receive_profile or _ignore_profile
        self._next_expiry_s = 0.0
        self._receive = receive or _ignore
        self._settings = settings
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, _Command] = OrderedDict()
        self._by_rank: dict[Key, list[str]] = {}
        self._ended: OrderedDict[str, _Command] = OrderedDict()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._token = settings.token.encode()
        self._warnings = {path: Throttle(1 / _LOG_EVERY_S) for path in (POLLS, ASKS)}

    def refusal(self, headers: Mapping[str, str], path: str) -> tuple[int, str] | None:
        """Status and text for a request without the token; None for one with it. Compares in
        constant time."""
        given = headers.get(COMMANDS_TOKEN_HEADER)
        if given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token):
            return None
        status = 401 if given is None else 403
        if self._warnings[path].passes():
            how = "without a token" if given is None else "with a wrong token"
            _log.warning("%s: a request %s is refused; so are others like it", path, how)
        return status, f"the header {COMMANDS_TOKEN_HEADER} must have the collector's token"

    def ask_for(self, body: bytes) -> dict[str, Any]:
        """Ask ranks for something.

        Args:
            body: JSON: ``verb``, ``run``; ``group`` if it has a name; ``ranks``, all if left out.

        Raises:
            InputError: it is not valid.
        """
        request = JsonBody(body, COMMAND_REMEDY)
        run_id, group, verb = (request.get(name, "") for name in ("run", "group", "verb"))
        if not all(isinstance(text, str) for text in (run_id, group, verb)):
            raise wrong_command(
                "run, group and verb", body[:100].decode("utf-8", "replace"), "texts"
            )
        ranks = request.get("ranks")
        if ranks is None:
            run = self.snapshot.runs.get(run_id)
            ranks = [] if run is None else run.live_ranks(group)
        if not isinstance(ranks, list) or not ranks or not all(type(r) is int for r in ranks):
            raise wrong_command("ranks", str(ranks)[:100], "a list of ranks of a run that is known")
        if verb not in HANG_VERBS:
            raise wrong_command("verb", verb, f"one of {', '.join(HANG_VERBS)}")
        ranks = list(dict.fromkeys(ranks))
        ids = self.ask(run_id, group, ranks, verb, "asked by a person")
        return {"commands": [{"id": i, "rank": r} for i, r in zip(ids, ranks, strict=True)]}

    def ask(
        self,
        run_id: str,
        group: str,
        ranks: Iterable[int],
        verb: str,
        why: str,
        steps: Steps | None = None,
    ) -> list[str]:
        """Ask some ranks for ``verb``; returns the ids of the commands. ``steps``: to profile.

        Raises:
            InputError: the verb or a rank is unknown, or too many commands wait.
        """
        sources = {rank: self.snapshot.source_of(run_id, group, rank) for rank in ranks}
        if verb not in VERBS:
            raise wrong_command("verb", verb, f"one of {', '.join(VERBS)}")
        for rank, source in sources.items():
            if source is None:
                known = "a rank that sends heartbeats"
                raise wrong_command(f"run {run_id}, group {group!r}, rank", rank, known)
        with self._lock:
            self._expire()
            if len(self._waiting) + len(sources) > MAX_WAITING:
                raise wrong_command(
                    "commands that wait", MAX_WAITING, "room for more; try again later"
                )
            ids = [self._put(one, verb, steps) for one in sources.values() if one is not None]
        named = sorted(sources) if len(sources) <= MAX_CULPRITS else len(sources)
        _log.info("%s of ranks %s of run %s: %s", verb, named, run_id, why)
        return ids

    def poll(self, query: str, body: bytes = b"") -> bytes:
        """Commands for a rank, as JSON. None for anyone but the newest session of the rank it
        names, on the node that it last reported from.

        Args:
            body: JSON with flight records and profiles by the id of the command, or empty.

        Raises:
            InputError: it is not valid.
        """
        given = read_query(query)
        wanted: list[dict[str, Any]] = []
        key = _key(given)
        source = None if key is None else self.snapshot.source_of(*key)
        asks = given.get("session"), given.get("node")
        if key is not None and source is not None and asks == (source.session_id, source.node):
            if body:
                parts = parts_of(body)
                self._take_records(key, source.session_id, parts.get("flight_records", {}))
                self._take_profiles(key, source.session_id, parts.get("profiles", {}))
            with self._lock:
                self._expire()
                self._record_outcomes(key, source.session_id, given)
                wanted = [
                    command.json
                    for command in map(self._waiting.__getitem__, self._by_rank.get(key, ()))
                    if (command.session_id, command.node) == asks
                ]
        return json.dumps({"commands": wanted}, separators=(",", ":")).encode()

    def outcomes_of(self, query: str, prefix: str = "") -> dict[str, Any]:
        """The outcomes of ``?ids=a,b``, and why ranks refused, where they said so: of commands to
        runs whose names begin with ``prefix``.

        Raises:
            InputError: the query cannot be read.
        """
        asked = self._known(read_query(query).get("ids", "").split(","), prefix)
        whys = {id_: REFUSALS[command.why] for id_, command in asked.items() if command.why}
        outcomes = {id_: command.outcome for id_, command in asked.items()}
        return {"outcomes": outcomes, **({"why": whys} if whys else {})}

    def outcomes(self, ids: Iterable[str]) -> dict[str, str]:
        """waiting, done, failed, refused, or expired; unknown ids are left out."""
        return {id_: command.outcome for id_, command in self._known(ids).items()}

    def _known(self, ids: Iterable[str], prefix: str = "") -> dict[str, _Command]:
        with self._lock:
            self._expire()
            found = {id_: self._waiting.get(id_) or self._ended.get(id_) for id_ in ids}
            return {id_: c for id_, c in found.items() if c and c.key[0].startswith(prefix)}

    def counts(self) -> Mapping[tuple[str, str], int]:
        """(verb, outcome) to commands so far; "asked" is all of them."""
        with self._lock:
            return dict(self._counts)

    def ask_hung(
        self, run_id: str, group: str, hang: HangStatus, asked: Asked
    ) -> dict[str, list[int]]:
        """Ask for what ``on_hang`` names, once in an episode for each rank; who was asked now, by
        verb. Never raises.

        Stacks are those of live culprits, and of a few victims to compare them with. Flight records
        are compared with each other: those of all ranks, the culprits first.

        Args:
            asked: the ranks that were asked in this episode; updated.
        """
        if not self._settings.enabled or not self._settings.on_hang:
            return {}
        if hang.blame is None:
            asked.clear()
            return {}
        return {
            verb: self._ask_suspects(run_id, group, hang, verb, asked.setdefault(verb, set()))
            for verb in self._settings.on_hang
        }

    def _ask_suspects(
        self, run_id: str, group: str, hang: HangStatus, verb: str, asked: set[int]
    ) -> list[int]:
        is_record = verb == DUMP_FLIGHT_RECORD
        room = (MAX_RECORDED if is_record else MAX_CULPRITS + MAX_VICTIMS) - len(asked)
        suspects = _everybody(hang) if is_record else _suspects(hang)
        ranks = [rank for rank in suspects if rank not in asked][: max(room, 0)]
        asked.update(ranks)
        live = [
            rank
            for rank in ranks
            if self.snapshot.source_of(run_id, group, rank) is not None
            and not (is_record and self._is_waiting((run_id, group, rank), verb))
        ]
        try:
            if live:
                self.ask(run_id, group, live, verb, "the run is stuck")
        except InputError as error:
            _log.warning("stuck ranks are not asked: %s", error)
            return []
        return live

    def _is_waiting(self, key: Key, verb: str) -> bool:
        """Whether a rank has not answered such a command yet."""
        with self._lock:
            return any(self._waiting[id_].verb == verb for id_ in self._by_rank.get(key, ()))

    # --- flight records and profiles -----------------------------------------------------------

    def _was_asked(self, id_: str, verb: str, key: Key, session_id: str) -> bool:
        with self._lock:
            command = self._waiting.get(id_)
            asks = None if command is None else (command.verb, command.key, command.session_id)
        return asks == (verb, key, session_id)

    def _take_profiles(self, key: Key, session_id: str, profiles: Mapping[str, Any]) -> None:
        """Hand on the operator tables that were asked for, and why there are none."""
        for id_, content in profiles.items():
            if self._was_asked(id_, PROFILE, key, session_id):
                self._receive_profile(key, read_profile(content, key[2]))

    def _take_records(self, key: Key, session_id: str, records: Mapping[str, Any]) -> None:
        """Hand on the records that were asked for."""
        for id_, content in records.items():
            if self._was_asked(id_, DUMP_FLIGHT_RECORD, key, session_id):
                self._receive(key, *read_record(content, key[2]))

    # --- with the lock held -------------------------------------------------------------------

    def _put(self, source: Source, verb: str, steps: Steps | None) -> str:
        is_profile = verb == PROFILE
        lasts_s = self._settings.expire_seconds
        command = _Command(
            id=os.urandom(8).hex(),
            verb=verb,
            key=(source.run_id, source.group, source.rank),
            session_id=source.session_id,
            node=source.node,
            expires_s=self._monotonic_s() + max(lasts_s, PROFILE_EXPIRES_S * is_profile),
            steps=steps,
        )
        self._waiting[command.id] = command
        self._next_expiry_s = min(self._next_expiry_s, command.expires_s)
        self._by_rank.setdefault(command.key, []).append(command.id)
        self._counts[verb, "asked"] += 1
        return command.id

    def _record_outcomes(self, key: Key, session_id: str, given: Mapping[str, str]) -> None:
        whys = dict(one.split(":", 1) for one in given.get("why", "").split(",") if ":" in one)
        for one in given.get("done", "").split(","):
            id_, _, outcome = one.partition(":")
            command = self._waiting.get(id_)
            if command is None or outcome not in _REPORTED:
                continue
            if (command.key, command.session_id) == (key, session_id):
                command.why = whys.get(id_, "") if whys.get(id_) in REFUSALS else ""
                _log.info(
                    "command %s, %s of rank %d: %s%s", id_, command.verb, key[2], outcome,
                    f", {REFUSALS[command.why]}" if command.why else "",
                )  # fmt: skip
                self._end(command, outcome)

    def _expire(self) -> None:
        """Cost: O(commands that wait), but only when the first of them is due."""
        now_s = self._monotonic_s()
        if now_s < self._next_expiry_s:
            return
        for command in list(self._waiting.values()):
            if command.expires_s <= now_s:
                text = "command %s of rank %d was not carried out in time"
                _log.info(text, command.id, command.key[2])
                self._end(command, "expired")
        self._next_expiry_s = min((each.expires_s for each in self._waiting.values()), default=0.0)

    def _end(self, command: _Command, outcome: str) -> None:
        del self._waiting[command.id]
        of_rank = self._by_rank[command.key]
        of_rank.remove(command.id)
        if not of_rank:
            del self._by_rank[command.key]
        command.outcome = outcome
        self._ended[command.id] = command
        self._counts[command.verb, outcome] += 1
        if command.verb == DUMP_FLIGHT_RECORD and outcome in {"failed", "refused"}:
            self._receive(command.key, None, 0.0)
        if command.verb == PROFILE and outcome != "done":
            why = REFUSALS.get(command.why, _WHY_NO_PROFILE[outcome])
            self._receive_profile(command.key, why)
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)


def _ignore(key: Key, record: FlightRecord | None, age_s: float) -> None:
    """Nobody compares flight records."""


def _ignore_profile(key: Key, profile: OperatorTable | str) -> None:
    """Nobody compares profiles."""


def _suspects(hang: HangStatus) -> list[int]:
    """Culprits that can answer, then some victims."""
    assert hang.blame is not None
    alive = hang.rank_states != LOST
    culprits = hang.ranks[hang.blame.culprits & alive][:MAX_CULPRITS]
    victims = hang.ranks[hang.blame.victims & ~hang.blame.culprits & alive][:MAX_VICTIMS]
    ranks: list[int] = np.concatenate([culprits, victims]).tolist()
    return ranks


def _everybody(hang: HangStatus) -> list[int]:
    """All ranks that can answer: culprits, victims, then the others."""
    assert hang.blame is not None
    alive = (hang.rank_states != LOST) & ~are_over(hang.rank_states)
    order = np.where(hang.blame.culprits, 0, np.where(hang.blame.victims, 1, 2))
    by_order = np.argsort(order, kind="stable")
    ranks: list[int] = hang.ranks[by_order][alive[by_order]].tolist()
    return ranks


def _key(given: Mapping[str, str]) -> Key | None:
    rank = given.get("rank", "")
    if not (rank.isascii() and rank.isdecimal() and len(rank) <= 10):
        return None
    return given.get("run", ""), given.get("group", ""), int(rank)


def run_in(query: str) -> str:
    """The run for which a rank polls; empty if it names none.

    Raises:
        InputError: the query cannot be read.
    """
    return read_query(query).get("run", "")
