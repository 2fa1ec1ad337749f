"""The other shards of a fleet: which runs they have, and which of ours have moved to them.

Each shard asks all others every two seconds for the runs that they hear of. A run belongs to the
shard that has heard from it last. When a gateway begins to send a run to another shard, the old
one evicts it before its silence looks like lost ranks, and the new one takes over its alerts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from otel_straggler.collector.api.peer_answers import (
    MAX_BYTES,
    about,
    read_alerts,
    read_answer,
    read_run_list,
    reason_of,
)
from otel_straggler.errors import UnavailableError
from otel_straggler.model.alert import Alert
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.otlp.clients.token import token_headers

_log = logging.getLogger(__name__)
Json: TypeAlias = dict[str, Any]

EVERY_S: Final = 2.0
_TIMEOUT_S: Final = 5.0
MOVED_S: Final = 8.0
"""A run that a peer hears from is evicted here after so long in silence; ranks are lost after 20 s
(``liveness.lost_after_seconds``)."""
HANDOVER_S: Final = 5.0
"""So long after a peer was first seen to have the run, the peer has asked for its alerts."""
_FRESH_S: Final = 5.0
_REMEMBER_S: Final = 3_600.0
_NOT_FOUND: Final = 404
_AT_ONCE: Final = 2
"""Requests of pages that wait for one shard: a slow one must not take the threads of the others."""
_ROOM_S: Final = 1.0
LOCAL: Final = "local"
"""Query of ``/v1/runs`` for the runs of one shard only."""


class UnknownOnPeerError(Exception):
    """The peer answered that it has no such run, group, rank, or section."""


@dataclass(slots=True)
class Peer:
    """One shard. ``runs``: its live runs by name; ages count from ``asked_at_s`` (monotonic).
    ``page_url``: where people find its page."""

    url: str
    page_url: str = ""
    collector: str = ""
    runs: dict[str, Json] = field(default_factory=dict)
    asked_at_s: float = 0.0
    now_s: float = 0.0
    problem: str = ""
    poll: Future[None] | None = None
    room: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_AT_ONCE)
    )

    def age_s(self, run_id: str, monotonic_s: float) -> float | None:
        """Seconds since the peer heard from a run; None if it has none of the name."""
        received_s = self.runs.get(run_id, {}).get("received_at_s")
        if received_s is None:
            return None
        return max(0.0, self.now_s - float(received_s)) + (monotonic_s - self.asked_at_s)


Ask: TypeAlias = Callable[[str], Response]


class Peers:
    """Thread-safe. ``start`` and ``stop`` once each; without URLs there is no thread.

    Args:
        urls: metrics addresses of the other shards; this one's own may be among them.
        ages: seconds since each live run of this shard was heard from.
        evict: called with runs that have moved to a peer.
        take_over: called with a run that has moved here, and its alerts at the old shard.
        ask: GET of a URL.

    Attributes:
        version: changes with every round.
        list_version: changes with the list of runs, except ``received_at_s``.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        ages: Callable[[], Mapping[str, float]] = dict,
        evict: Callable[[Sequence[str]], None] = lambda _: None,
        take_over: Callable[[Sequence[Alert]], None] = lambda _: None,
        ask: Ask | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.peers = tuple(Peer(url.rstrip("/")) for url in urls)
        self.own_id = ""
        self.version = self.list_version = 0
        self._listed: list[object] = []
        self._ages, self._evict, self._take_over = ages, evict, take_over
        self._ask = ask or _get
        self._monotonic_s = monotonic_s
        self._taken: dict[str, float] = {}
        self._moved: dict[str, float] = {}
        self._fresh_there_since_s: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(max(len(self.peers), 1), "straggler-peer")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="straggler-peers", daemon=True)

    def start(self, own_id: str) -> None:
        """``own_id``: the label ``collector`` of this shard."""
        self.own_id = own_id
        if self.peers:
            self._thread.start()

    def stop(self, deadline_s: float) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(deadline_s)
        self._pool.shutdown(wait=False, cancel_futures=True)

    # --- answers ---------------------------------------------------------------------------------

    def merged(self, entries: Iterable[Json]) -> list[Json]:
        """Entries of the list of runs, of this shard and all others: of a run that several have,
        this shard's while it is heard here, else the entry of the shard that heard from it last.
        ``url`` and ``page_url`` are those of its shard; None: here."""
        here = {"collector": self.own_id or None, "url": None, "page_url": None}
        own = [{**entry, **here} for entry in entries]
        result: dict[str, Json] = {entry["run_id"]: entry for entry in own}
        received_here = {run_id for run_id, age_s in self._ages().items() if age_s < MOVED_S}
        for peer in self.others():
            for run_id, entry in peer.runs.items():
                known = result.get(run_id)
                if known is None or (run_id not in received_here and _is_newer(entry, known)):
                    there = {"url": peer.url, "page_url": peer.page_url}
                    result[run_id] = {**entry, "collector": peer.collector, **there}
        return list(result.values())

    def owner(self, run_id: str | None) -> Peer | None:
        """The peer that has heard from the run last; None if none has it."""
        now_s = self._monotonic_s()
        ages = [
            (age, p) for p in self.others() if (age := p.age_s(run_id or "", now_s)) is not None
        ]
        return min(ages, key=lambda each: each[0])[1] if ages else None

    def state(self, run_id: str) -> str | None:
        """Changes when its shard has heard from the run; None if no peer has it."""
        peer = self.owner(run_id)
        return None if peer is None else f"{peer.collector}-{peer.runs[run_id]['received_at_s']}"

    def fetch(self, peer: Peer, path: str, query: Mapping[str, str]) -> Json:
        """What a peer answers.

        Raises:
            UnknownOnPeerError: it has no such run or part of it.
            UnavailableError: it does not answer.
        """
        url = f"{peer.url}{path}?{urlencode(query)}"
        if not peer.room.acquire(timeout=_ROOM_S):
            remedy = "Ask again in a few seconds."
            raise UnavailableError.of(
                url, "no answer yet to others", "a shard that answers", remedy
            )
        try:
            response = self._ask(url)
        finally:
            peer.room.release()
        if response.status == _NOT_FOUND:
            raise UnknownOnPeerError(reason_of(response))
        try:
            return about(read_answer(response), query.get("run"))
        except ValueError as error:
            remedy = "Is that shard running, and is this its metrics address?"
            expected = "an answer of the shard that has it"
            raise UnavailableError.of(url, str(error), expected, remedy) from error

    def problems(self, prefix: str = "") -> tuple[str, ...]:
        """Peers that do not answer, and why; for a reader of the runs whose names begin with
        ``prefix`` only how many these are."""
        away = [peer for peer in self.peers if peer.problem]
        if prefix and away:
            of_all = f"{len(away)} of {len(self.peers)} shards"
            return (f"{of_all} gave no list of runs; runs that are there are missing here",)
        return tuple(
            f"the shard {peer.url} does not answer ({peer.problem}); its runs are missing here"
            for peer in away
        )

    def others(self) -> Iterable[Peer]:
        return [peer for peer in self.peers if peer.collector != self.own_id and peer.runs]

    def has_moved(self, run_id: str) -> bool:
        """Whether a peer has taken over a run of this shard: its alerts are the peer's now."""
        return run_id in self._moved

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - logged; the next round goes on
                _log.exception("the shards could not be asked; the next round goes on")

    def tick(self) -> None:
        """Ask every peer once, and find the runs that have moved."""
        self._poll_all()
        self.version += 1
        listed = [_listed(peer) for peer in self.peers]
        if listed != self._listed:
            self._listed, self.list_version = listed, self.list_version + 1
        now_s, ages = self._monotonic_s(), dict(self._ages())
        self._find_moved(ages, now_s)
        for run_id, age_s in ages.items():
            if age_s < _FRESH_S and run_id not in self._taken:
                self._taken[run_id] = now_s
                self._take_over_alerts(run_id, age_s, now_s)
        for run_id in [run_id for run_id in self._taken if run_id not in ages]:
            del self._taken[run_id]

    def _poll_all(self) -> None:
        """All at once: a slow one is not asked a second time, and not waited for."""
        for peer in self.peers:
            if peer.poll is None or peer.poll.done():
                peer.poll = self._pool.submit(self._poll, peer)
        wait([peer.poll for peer in self.peers if peer.poll is not None], EVERY_S)

    def _poll(self, peer: Peer) -> None:
        """Never raises."""
        try:
            collector, now_s, page_url, live = read_run_list(
                self._ask(f"{peer.url}/v1/runs?{LOCAL}=1")
            )
        except Exception as error:  # noqa: BLE001 - said on the page, and in the log once
            if not peer.problem:
                _log.warning("the shard %s does not answer: %s", peer.url, error)
            peer.problem = str(error) or type(error).__name__
            peer.runs = {}
            return
        peer.collector, peer.runs, peer.now_s = collector, live, now_s
        peer.page_url = page_url or peer.url
        peer.asked_at_s, peer.problem = self._monotonic_s(), ""

    def _find_moved(self, ages: Mapping[str, float], now_s: float) -> None:
        moved = []
        since_s = self._fresh_there_since_s
        self._fresh_there_since_s = {}
        for run_id, age_s in ages.items():
            if age_s < _FRESH_S:
                self._moved.pop(run_id, None)
            elif self._is_fresh_there(run_id, now_s):
                at_s = self._fresh_there_since_s[run_id] = since_s.get(run_id, now_s)
                if age_s >= MOVED_S and now_s - at_s >= HANDOVER_S:
                    self._moved[run_id] = now_s
                    moved.append(run_id)
        self._moved = {r: at_s for r, at_s in self._moved.items() if now_s - at_s < _REMEMBER_S}
        if moved:
            _log.info("%d runs have moved to another shard, %s among them", len(moved), moved[0])
            self._evict(moved)

    def _is_fresh_there(self, run_id: str, now_s: float) -> bool:
        ages = (peer.age_s(run_id, now_s) for peer in self.others())
        return any(age is not None and age < _FRESH_S for age in ages)

    def _take_over_alerts(self, run_id: str, age_s: float, now_s: float) -> None:
        """A run that is new here: what fires for it at the shard that had it goes on here."""
        for peer in self.others():
            age = peer.age_s(run_id, now_s)
            is_its = age is not None and age > age_s and not peer.problem
            if not is_its or not peer.runs[run_id].get("alerts"):
                continue
            try:
                response = self._ask(f"{peer.url}/v1/report?run={quote(run_id, safe='')}")
                self._take_over(read_alerts(response, run_id))
            except Exception as error:  # noqa: BLE001 - logged; the other shards are asked
                peer.problem = f"no alerts of a run that came from there: {error}"
                _log.warning("the shard %s: %s", peer.url, peer.problem)


def _listed(peer: Peer) -> object:
    """Compared to detect changes of the list, except ``received_at_s``."""
    entries = ({**entry, "received_at_s": None} for entry in peer.runs.values())
    return peer.problem, peer.page_url, list(entries)


def _is_newer(entry: Json, known: Json) -> bool:
    if known["is_live"] != entry["is_live"]:
        return bool(entry["is_live"])
    return (entry["received_at_s"] or 0.0) > (known["received_at_s"] or 0.0)


def _get(url: str) -> Response:
    client = HttpClient(url, timeout_s=_TIMEOUT_S, max_bytes=MAX_BYTES)
    try:
        headers = {"Accept": "application/json", **token_headers()}
        return client.send("GET", headers=headers)
    except (OSError, ValueError) as error:
        return Response(NO_ANSWER, error=str(error))
    finally:
        client.close()
