"""What is wanted of which rank: asked for by a person or because a run is stuck, fetched by it.

A command is for one session of one rank. It is given with every poll until the rank has told what
came of it, or nobody has fetched it in time; the rank does it once.
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
from otel_straggler.errors import InputError, describe
from otel_straggler.model.rank import Source
from otel_straggler.semconv import COMMANDS_TOKEN_HEADER, VERBS
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
    """The book of commands. Thread-safe.

    Args:
        settings: see there.
        monotonic_s: clock.

    Attributes:
        snapshot: what was published last: the sessions that there are.
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

    def ask(self, run_id: str, group: str, ranks: Iterable[int], verb: str, why: str) -> list[str]:
        """Want ``verb`` of some ranks; the ids of the commands.

        Raises:
            InputError: the verb is none, a rank is not known, or too much waits already.
        """
        result = {rank: self.snapshot.source_of(run_id, group, rank) for rank in ranks}
        if verb not in VERBS:
            raise _wrong("verb", verb, f"one of {', '.join(VERBS)}")
        for rank, source in result.items():
            if source is None:
                known = "the rank of a run from which heartbeats have come"
                raise _wrong(f"run {run_id}, group {group!r}, rank", rank, known)
        with self._lock:
            self._expire()
            if len(self._waiting) + len(result) > MAX_WAITING:
                raise _wrong("commands that wait", MAX_WAITING, "room for more; try again later")
            ids = [self._put(source, verb) for source in result.values() if source is not None]
        _log.info("%s of ranks %s of run %s: %s", verb, sorted(result), run_id, why)
        return ids

    def poll(self, query: str) -> bytes:
        """The answer to a rank that asks: what is wanted of it. Nothing for whoever is not the
        newest session of the rank it names, on the node that it was last heard from."""
        given = dict(parse_qsl(query[:MAX_QUERY], keep_blank_values=True, max_num_fields=10))
        wanted: list[dict[str, str]] = []
        key = _key(given)
        source = None if key is None else self.snapshot.source_of(*key)
        asks = given.get("session"), given.get("node")
        if key is not None and source is not None and asks == (source.session_id, source.node):
            with self._lock:
                self._expire()
                self._take_outcomes(key, source.session_id, given.get("done", ""))
                wanted = [
                    {"id": command.id, "verb": command.verb}
                    for command in map(self._waiting.__getitem__, self._by_rank.get(key, ()))
                    if (command.session_id, command.node) == asks
                ]
        return json.dumps({"commands": wanted}, separators=(",", ":")).encode()

    def outcomes(self, ids: Iterable[str]) -> dict[str, str]:
        """What came of commands: waiting, done, failed, refused, expired; unknown ids left out."""
        with self._lock:
            self._expire()
            both = {**self._ended, **self._waiting}
            return {id_: both[id_].outcome for id_ in ids if id_ in both}

    def counts(self) -> Mapping[tuple[str, str], int]:
        """(verb, outcome) to commands so far; "asked" is all of them."""
        with self._lock:
            return dict(self._counts)

    def ask_hung(self, run_id: str, group: str, result: HangStatus, asked: set[int]) -> None:
        """Ask for what ``on_hang`` names, once in an episode for each rank: culprits that live, and
        a few victims to compare them with. Never raises.

        Args:
            asked: the ranks that were asked in this episode; kept up to date.
        """
        if not self._settings.enabled or not self._settings.on_hang:
            return
        if result.blame is None:
            asked.clear()
            return
        room = MAX_CULPRITS + MAX_VICTIMS - len(asked)
        ranks = [rank for rank in _suspects(result) if rank not in asked][: max(room, 0)]
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

    def _take_outcomes(self, key: Key, session_id: str, reported: str) -> None:
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


class Asking:
    """What stands behind ``/v1/commands`` of the metrics address.

    Args:
        commands: the book.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def ask(self, body: bytes) -> dict[str, Any]:
        """Want something of ranks.

        Args:
            body: JSON: ``verb``, ``run``; ``group`` if it has a name; ``ranks``, all if left out.

        Raises:
            InputError: it is no such thing.
        """
        asked = Asked(body, _REMEDY)
        given = (asked.get(name) for name in ("run", "group", "verb"))
        run_id, group, verb = ("" if text is None else text for text in given)
        if not all(isinstance(text, str) for text in (run_id, group, verb)):
            raise _wrong("run, group and verb", body[:100].decode("utf-8", "replace"), "texts")
        ranks = asked.get("ranks")
        if ranks is None:
            run = self._commands.snapshot.runs.get(run_id)
            ranks = [] if run is None else run.live_ranks(group)
        if not isinstance(ranks, list) or not ranks or not all(type(r) is int for r in ranks):
            raise _wrong("ranks", str(ranks)[:100], "a list of ranks of a run that is known")
        ranks = list(dict.fromkeys(ranks))
        ids = self._commands.ask(run_id, group, ranks, verb, "somebody asks")
        return {"commands": [{"id": i, "rank": r} for i, r in zip(ids, ranks, strict=True)]}

    def outcomes(self, query: str) -> dict[str, Any]:
        """What came of ``?ids=a,b``."""
        given = dict(parse_qsl(query, keep_blank_values=True))
        return {"outcomes": self._commands.outcomes(given.get("ids", "").split(","))}


def _suspects(result: HangStatus) -> list[int]:
    """Those that the others wait for and that can answer, then some of those that wait."""
    assert result.blame is not None
    alive = result.rank_states != LOST
    culprits = result.ranks[result.blame.culprits & alive][:MAX_CULPRITS]
    victims = result.ranks[result.blame.victims & ~result.blame.culprits & alive][:MAX_VICTIMS]
    ranks: list[int] = np.concatenate([culprits, victims]).tolist()
    return ranks


def _key(given: Mapping[str, str]) -> Key | None:
    rank = given.get("rank", "")
    if not (rank.isascii() and rank.isdecimal() and len(rank) <= 10):
        return None
    return given.get("run", ""), given.get("group", ""), int(rank)


def _wrong(where: str, value: object, expected: str) -> InputError:
    return InputError(describe(where=where, value=value, expected=expected, remedy=_REMEDY))


LONGEST_TEXT: Final = 500


class Asked:
    """One body.

    Args:
        body: JSON.
        remedy: ends every sentence about what is wrong with it.

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

    def get(self, name: str) -> Any:
        """Whatever was given; None if nothing was."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
            raise self.wrong(name, value, f"a text of 1 to {LONGEST_TEXT} characters")
        return value.encode("utf-8", "replace").decode()

    def number(self, name: str, minimum: float, maximum: float, expected: str) -> float:
        value = self._values.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not minimum <= value <= maximum:  # type: ignore[operator]
            raise self.wrong(name, value, expected)
        return float(value)  # type: ignore[arg-type]

    def wrong(self, where: str, value: object, expected: str) -> InputError:
        return InputError(
            describe(where=where, value=value, expected=expected, remedy=self._remedy)
        )


@dataclass(frozen=True, slots=True)
class GuardedAsking:
    """What ``/v1/commands`` of the metrics address does.

    Attributes:
        ask: takes the body of a POST; raises InputError for a wrong one.
        outcomes: takes the query of a GET.
        refusal: status and sentence for who does not show the token.
    """

    ask: Callable[[bytes], dict[str, Any]]
    outcomes: Callable[[str], dict[str, Any]]
    refusal: Callable[[Mapping[str, str]], tuple[int, str] | None]


class TokenGuard:
    """Compares in constant time. For one thread at a time, or where a second log line is no harm.

    Args:
        token: the right one; not empty.
        what: that it guards, for the log.
    """

    def __init__(self, token: str, what: str) -> None:
        self._token = token.encode()
        self._what = what
        self._warnings = Throttle(1 / _LOG_EVERY_S)

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and sentence for a request that does not show it; None for one that does."""
        given = headers.get(COMMANDS_TOKEN_HEADER)
        if given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self._token):
            return None
        status = 401 if given is None else 403
        if self._warnings.passes():
            how = "without a token" if given is None else "with a wrong token"
            _log.warning("%s: a request %s is refused; so are others like it", self._what, how)
        return status, f"the header {COMMANDS_TOKEN_HEADER} must have the collector's token"
