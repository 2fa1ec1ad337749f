"""Replay of a run into a live collector: spans step by step, and heartbeats in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.clients.client import Signal
from otel_straggler.otlp.encode_metrics import encode_heartbeat, encode_kernel_times, encode_numbers
from otel_straggler.semconv import Outcome
from otel_straggler.simulate.auxiliary_metrics import Goodput, KernelReports, Saves, Sensors
from otel_straggler.simulate.writers import encode_requests, resource_of

BEAT_S = 5.0
"""Between two heartbeats of a rank, as in the client."""
LARGEST_BODY_BYTES = 512 * 1024

Post = Callable[[Signal, bytes], None]
"""Sends one request: "traces" or "metrics", and the body."""


class Clock:
    """Time of this machine."""

    def now_s(self) -> float:
        return time.time()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)


@dataclass(frozen=True)
class StoppedClock(Clock):
    """Shows one time."""

    at_s: float

    def now_s(self) -> float:
        return self.at_s


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end of a run that hangs.

    Attributes:
        silent: ranks of the last attempt that send no heartbeat after their last row.
        hold_s: how long the others go on sending heartbeats without progress.
    """

    silent: frozenset[int] = frozenset()
    hold_s: float = 60.0


@dataclass
class _Rank:
    source: Source
    progress_at_s: float
    step: int | None = None
    next_section: str = ""


@dataclass
class Replay:
    """Sends a run as its ranks would.

    Attributes:
        speed: seconds of the run per second; 0: without pauses.
        ending: None: the ranks end well.
        quick_until_step: steps before it are sent without a pause.
        sensors: of the ranks' GPUs; None: not reported.
        spans: sent so far.
    """

    post: Post
    speed: float = 1.0
    ending: Ending | None = None
    clock: Clock = field(default_factory=Clock)
    quick_until_step: int = 0
    sensors: Sensors | None = None
    spans: int = 0
    _ranks: list[_Rank] = field(default_factory=list)
    _kernels: KernelReports = field(default_factory=KernelReports)
    _goodput: Goodput = field(default_factory=Goodput)
    _saves: Saves = field(default_factory=Saves)
    _beat_at_s: float = 0.0
    _started_at_s: float = 0.0
    _paced_since_s: float = 0.0

    def run(self, batches: Iterable[ObservationBatch]) -> int:
        """Send all; returns the number of spans. A step is sent when its last row has ended."""
        self._started_at_s = self._paced_since_s = self.clock.now_s()
        first_ns: int | None = None
        for rows in _steps(batches) if self.speed else batches:
            self._begin_attempt(rows.sources)
            if first_ns is None and int(rows.step[0]) >= self.quick_until_step:
                first_ns = int(rows.start_ns[0])
                self._paced_since_s = self.clock.now_s()
            due_s = self._paced_since_s
            if self.speed and first_ns is not None:
                due_s += (end_of_ns(rows) - first_ns) / 1e9 / self.speed
            self._wait_until(due_s)
            self._send(rows)
        self._end()
        return self.spans

    def end(self, sources: Sequence[Source]) -> None:
        """Send only the end of a run whose rows were sent before, as the clock shows it."""
        now_s = self._started_at_s = self.clock.now_s()
        self._ranks = [_Rank(source, now_s) for source in sources]
        self._end()

    def _begin_attempt(self, sources: tuple[Source, ...]) -> None:
        if not self._ranks or self._ranks[0].source.session_id != sources[0].session_id:
            now_s = self.clock.now_s()
            self._ranks = [_Rank(source, now_s) for source in sources]
            self._beat(self._ranks)

    def _wait_until(self, due_s: float, silent: frozenset[int] | None = None) -> None:
        """Send heartbeats until then.

        Args:
            silent: ranks that send none, in a run that hangs; None: it does not hang.
        """
        while True:
            now_s = self.clock.now_s()
            if now_s >= self._beat_at_s + BEAT_S:
                if silent is not None:
                    self._goodput.hang(now_s - self._beat_at_s)
                gone = silent or frozenset()
                self._beat([rank for rank in self._ranks if rank.source.rank not in gone])
            if now_s >= due_s:
                return
            self.clock.sleep(min(due_s, self._beat_at_s + BEAT_S) - now_s)

    def _send(self, rows: ObservationBatch) -> None:
        for body in _joined(encode_requests(rows, first_span=self.spans)):
            self.post("traces", body)
        self.spans += len(rows)
        self._kernels.add(rows)
        self._goodput.add(rows)
        if self.speed:  # else it is no step of all ranks
            self._saves.add(rows)
        now_s = self.clock.now_s()
        codes, backwards = np.unique(rows.source[::-1], return_index=True)
        last_rows = len(rows) - 1 - backwards
        for code, row in zip(codes.tolist(), last_rows.tolist(), strict=True):
            rank = self._ranks[code]
            rank.progress_at_s = now_s
            rank.step = int(rows.step[row])
            following = rows.sections[int(rows.section[row]) + 1 :]
            rank.next_section = following[0].name if following else rows.sections[0].name

    def _beat(self, ranks: Sequence[_Rank], outcome: Outcome | None = None) -> None:
        self._beat_at_s = self.clock.now_s()
        bodies = (self._heartbeat(rank, outcome) for rank in ranks)
        for body in _joined(bodies):
            self.post("metrics", body)
        for body in _joined(self._auxiliary_metrics(ranks)):
            self.post("metrics", body)

    def _auxiliary_metrics(self, ranks: Sequence[_Rank]) -> Iterator[bytes]:
        """Kernel times, sensors, saves, and goodput from the first rank."""
        since_ns, until_ns, kernels = self._kernels.drain()
        for code, counts in kernels.items():
            reported = resource_of(self._ranks[code].source)
            yield encode_kernel_times(counts, resource=reported, start_ns=since_ns, end_ns=until_ns)
        now_s = self.clock.now_s()
        for rank in ranks:
            numbers = [] if rank is not ranks[0] else list(self._goodput.numbers())
            numbers += self._saves.numbers(rank.source)
            if self.sensors is not None:
                numbers += self.sensors.numbers(rank.source, rank.step, now_s)
            if numbers:
                yield encode_numbers(
                    numbers,
                    resource=resource_of(rank.source),
                    now_s=now_s,
                    started_at_s=self._started_at_s,
                )

    def _heartbeat(self, rank: _Rank, outcome: Outcome | None) -> bytes:
        now_s = self.clock.now_s()
        beat = Heartbeat(
            source=rank.source,
            sent_at_s=now_s,
            progress_at_s=rank.progress_at_s,
            step=rank.step,
            open_section="" if outcome else rank.next_section,
            open_time_s=now_s - rank.progress_at_s if rank.next_section else None,
            finished_at_s=now_s if outcome else None,
            outcome=outcome,
        )
        reported = resource_of(rank.source)
        info = {k: v for k, v in reported.items() if k in _DESCRIBED}
        return encode_heartbeat(beat, resource=reported, info=info, started_at_s=self._started_at_s)

    def _end(self) -> None:
        if self.ending is None:
            self._beat(self._ranks, "ok")
        else:
            hold_s = self.ending.hold_s if self.speed else 0.0
            self._wait_until(self.clock.now_s() + hold_s, self.ending.silent)


def seconds_before(batches: Iterable[ObservationBatch], step: int) -> float:
    """Seconds from the start of the run to the start of ``step``, or to its end if it is
    shorter."""
    first_ns = end_ns = 0
    for rows in _steps(batches):
        first_ns = first_ns or int(rows.start_ns[0])
        if int(rows.step[0]) >= step:
            break
        end_ns = max(end_ns, end_of_ns(rows))
    return max(end_ns - first_ns, 0) / 1e9


def end_of_ns(rows: ObservationBatch) -> int:
    return int((rows.start_ns + np.rint(rows.duration_s * 1e9).astype(np.int64)).max())


_DESCRIBED = frozenset(
    {semconv.ROLE, semconv.GPU_UUID, semconv.GPU_MODEL, *semconv.PARALLEL_RANK.values()}
)


def _steps(batches: Iterable[ObservationBatch]) -> Iterator[ObservationBatch]:
    """The rows of each step of each attempt, in order of their starts."""
    for batch in batches:
        order = np.argsort(batch.step, kind="stable")
        cuts = np.flatnonzero(np.diff(batch.step[order])) + 1
        for rows in np.split(order, cuts):
            if len(rows):
                yield batch.take(rows)


def _joined(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Requests put together: protobuf reads concatenated messages as one."""
    pieces: list[bytes] = []
    size = 0
    for message in messages:
        if pieces and size + len(message) > LARGEST_BODY_BYTES:
            yield b"".join(pieces)
            pieces, size = [], 0
        pieces.append(message)
        size += len(message)
    if pieces:
        yield b"".join(pieces)
