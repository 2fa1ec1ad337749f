"""Commands for ranks, given by a person or because a run is stuck.

A command is for one session of one rank. Every poll of the rank returns it until the rank has
reported its outcome or it expires; the rank carries it out once.
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
from typing import Any, Final
from urllib.parse import parse_qsl

import numpy as np

from otel_straggler.collector.settings import CommandsSettings
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import LOST
from otel_straggler.errors import InputError
from otel_straggler.model.rank import Source
from otel_straggler.semconv import COMMANDS_TOKEN_HEADER, VERBS
from otel_straggler.setting import is_number
from otel_straggler.throttle import Throttle

POLLS: Final = "GET /v1/commands of the OTLP/HTTP port"
ASKS: Final = "/v1/commands of the metrics address"
_LOG_EVERY_S = 60.0
MAX_WAITING: Final = 1_000
MAX_REMEMBERED: Final = 2_000
MAX_CULPRITS: Final = 20
MAX_VICTIMS: Final = 3
MAX_QUERY: Final = 4_096
_REMEDY: Final = "See docs/operate/silent-and-stuck-ranks.md, 'What a stuck rank was doing'."
_OUTCOMES: Final = frozenset({"done", "failed", "refused"})
_log = logging.getLogger(__name__)

Key = tuple[str, str, int]
"""Run, group, rank."""


@dataclass(slots=True)
class _Command:
    """One verb for one session of a rank."""

    id: str
    verb: str
    key: Key
    session_id: str
    node: str
    expires_s: float
    outcome: str = "waiting"


class Commands:
    """All commands. Thread-safe.

    Attributes:
        snapshot: published last; has the current sessions.
    """

    def __init__(
        self,
        settings: CommandsSettings,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.snapshot = Snapshot()
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
        request = JsonBody(body, _REMEDY)
        run_id, group, verb = (request.get(name, "") for name in ("run", "group", "verb"))
        if not all(isinstance(text, str) for text in (run_id, group, verb)):
            raise _wrong("run, group and verb", body[:100].decode("utf-8", "replace"), "texts")
        ranks = request.get("ranks")
        if ranks is None:
            run = self.snapshot.runs.get(run_id)
            ranks = [] if run is None else run.live_ranks(group)
        if not isinstance(ranks, list) or not ranks or not all(type(r) is int for r in ranks):
            raise _wrong("ranks", str(ranks)[:100], "a list of ranks of a run that is known")
        ranks = list(dict.fromkeys(ranks))
        ids = self.ask(run_id, group, ranks, verb, "asked by a person")
        return {"commands": [{"id": i, "rank": r} for i, r in zip(ids, ranks, strict=True)]}

    def ask(self, run_id: str, group: str, ranks: Iterable[int], verb: str, why: str) -> list[str]:
        """Ask some ranks for ``verb``; returns the ids of the commands.

        Raises:
            InputError: the verb or a rank is unknown, or too many commands wait.
        """
        sources = {rank: self.snapshot.source_of(run_id, group, rank) for rank in ranks}
        if verb not in VERBS:
            raise _wrong("verb", verb, f"one of {', '.join(VERBS)}")
        for rank, source in sources.items():
            if source is None:
                known = "a rank that sends heartbeats"
                raise _wrong(f"run {run_id}, group {group!r}, rank", rank, known)
        with self._lock:
            self._expire()
            if len(self._waiting) + len(sources) > MAX_WAITING:
                raise _wrong("commands that wait", MAX_WAITING, "room for more; try again later")
            ids = [self._put(source, verb) for source in sources.values() if source is not None]
        _log.info("%s of ranks %s of run %s: %s", verb, sorted(sources), run_id, why)
        return ids

    def poll(self, query: str) -> bytes:
        """Commands for a rank, as JSON. None for anyone but the newest session of the rank it
        names, on the node that it last reported from."""
        given = dict(parse_qsl(query[:MAX_QUERY], keep_blank_values=True, max_num_fields=10))
        wanted: list[dict[str, str]] = []
        key = _key(given)
        source = None if key is None else self.snapshot.source_of(*key)
        asks = given.get("session"), given.get("node")
        if key is not None and source is not None and asks == (source.session_id, source.node):
            with self._lock:
                self._expire()
                self._record_outcomes(key, source.session_id, given.get("done", ""))
                wanted = [
                    {"id": command.id, "verb": command.verb}
                    for command in map(self._waiting.__getitem__, self._by_rank.get(key, ()))
                    if (command.session_id, command.node) == asks
                ]
        return json.dumps({"commands": wanted}, separators=(",", ":")).encode()

    def outcomes_of(self, query: str) -> dict[str, Any]:
        """The outcomes of ``?ids=a,b``."""
        given = dict(parse_qsl(query, keep_blank_values=True))
        return {"outcomes": self.outcomes(given.get("ids", "").split(","))}

    def outcomes(self, ids: Iterable[str]) -> dict[str, str]:
        """waiting, done, failed, refused, or expired; unknown ids are left out."""
        with self._lock:
            self._expire()
            both = {**self._ended, **self._waiting}
            return {id_: both[id_].outcome for id_ in ids if id_ in both}

    def counts(self) -> Mapping[tuple[str, str], int]:
        """(verb, outcome) to commands so far; "asked" is all of them."""
        with self._lock:
            return dict(self._counts)

    def ask_hung(self, run_id: str, group: str, hang: HangStatus, asked: set[int]) -> None:
        """Ask for what ``on_hang`` names, once in an episode for each rank: live culprits, and a
        few victims to compare them with. Never raises.

        Args:
            asked: the ranks that were asked in this episode; updated.
        """
        if not self._settings.enabled or not self._settings.on_hang:
            return
        if hang.blame is None:
            asked.clear()
            return
        room = MAX_CULPRITS + MAX_VICTIMS - len(asked)
        ranks = [rank for rank in _suspects(hang) if rank not in asked][: max(room, 0)]
        asked.update(ranks)
        for rank in ranks:
            for verb in self._settings.on_hang:
                try:
                    self.ask(run_id, group, [rank], verb, "the run is stuck")
                except InputError as error:
                    _log.warning("a stuck rank is not asked: %s", error)

    # --- with the lock held -------------------------------------------------------------------

    def _put(self, source: Source, verb: str) -> str:
        command = _Command(
            id=os.urandom(8).hex(),
            verb=verb,
            key=(source.run_id, source.group, source.rank),
            session_id=source.session_id,
            node=source.node,
            expires_s=self._monotonic_s() + self._settings.expire_seconds,
        )
        self._waiting[command.id] = command
        self._by_rank.setdefault(command.key, []).append(command.id)
        self._counts[verb, "asked"] += 1
        return command.id

    def _record_outcomes(self, key: Key, session_id: str, reported: str) -> None:
        for one in reported.split(","):
            id_, _, outcome = one.partition(":")
            command = self._waiting.get(id_)
            if command is None or outcome not in _OUTCOMES:
                continue
            if (command.key, command.session_id) == (key, session_id):
                _log.info("command %s, %s of rank %d: %s", id_, command.verb, key[2], outcome)
                self._end(command, outcome)

    def _expire(self) -> None:
        """They wait in the order in which they end."""
        now_s = self._monotonic_s()
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if oldest.expires_s > now_s:
                return
            _log.info("command %s of rank %d was not carried out in time", oldest.id, oldest.key[2])
            self._end(oldest, "expired")

    def _end(self, command: _Command, outcome: str) -> None:
        del self._waiting[command.id]
        of_rank = self._by_rank[command.key]
        of_rank.remove(command.id)
        if not of_rank:
            del self._by_rank[command.key]
        command.outcome = outcome
        self._ended[command.id] = command
        self._counts[command.verb, outcome] += 1
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)


def _suspects(hang: HangStatus) -> list[int]:
    """Culprits that can answer, then some victims."""
    assert hang.blame is not None
    alive = hang.rank_states != LOST
    culprits = hang.ranks[hang.blame.culprits & alive][:MAX_CULPRITS]
    victims = hang.ranks[hang.blame.victims & ~hang.blame.culprits & alive][:MAX_VICTIMS]
    ranks: list[int] = np.concatenate([culprits, victims]).tolist()
    return ranks


def _key(given: Mapping[str, str]) -> Key | None:
    rank = given.get("rank", "")
    if not (rank.isascii() and rank.isdecimal() and len(rank) <= 10):
        return None
    return given.get("run", ""), given.get("group", ""), int(rank)


def _wrong(where: str, value: object, expected: str) -> InputError:
    return InputError.of(where, value, expected, _REMEDY)


LONGEST_TEXT: Final = 500


class JsonBody:
    """The JSON object of a request.

    Args:
        body: JSON.
        remedy: ends every error.

    Raises:
        InputError: it is no object; and by every method, if the value is not what was expected.
    """

    def __init__(self, body: bytes, remedy: str) -> None:
        self._remedy = remedy
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise self.wrong("body", body[:100].decode("utf-8", "replace"), "a JSON object")
        self._values: dict[str, Any] = values

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        value = self._values.get(name)
        return default if value is None else value

    def text(self, name: str, default: str | None = None) -> str:
        if default is not None and name not in self:
            return default
        value = self._values.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
            raise self.wrong(name, value, f"a text of 1 to {LONGEST_TEXT} characters")
        return value.encode("utf-8", "replace").decode()

    def number(self, name: str, minimum: float, maximum: float, expected: str) -> float:
        value = self._values.get(name)
        if not is_number(value) or not minimum <= value <= maximum:  # type: ignore[operator]
            raise self.wrong(name, value, expected)
        return float(value)  # type: ignore[arg-type]

    def wrong(self, where: str, value: object, expected: str) -> InputError:
        return InputError.of(where, value, expected, self._remedy)
