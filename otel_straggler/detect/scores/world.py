"""Everything that scores one world: a run and a group of ranks, over all its attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from otel_straggler.detect.scores.kernel_store import KernelHistograms
from otel_straggler.detect.scores.rank_progress import Ends, end_key
from otel_straggler.detect.scores.shared import Shared
from otel_straggler.detect.scores.sources import ClashWatch
from otel_straggler.detect.scores.stream import Stream
from otel_straggler.detect.scores.window_scores import ClosedBy, score_window
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.failure import Stage
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTable, StepTimes
from otel_straggler.model.verdict import Verdict, WorldSummary

_Result = TypeVar("_Result")
_SESSIONS_PER_RANK, _MANY_SESSIONS = 4, 1_000
RETIRE_S = 60.0
"""A replaced attempt that is silent for so long is dropped."""


_MAX_EARLY_ENDS = 1 << 16
"""Ranks of a world whose end came before any of their rows."""
MAX_INCARNATIONS = 64
"""Of an attempt; the oldest are dropped once their windows are closed."""


@dataclass(slots=True)
class _Attempt:
    streams: list[Stream] = field(default_factory=list)
    by_session: dict[tuple[int, str, str], Stream] = field(default_factory=dict)

    @property
    def has_many_sessions(self) -> bool:
        n_ranks = max((stream.n_ranks for stream in self.streams), default=0)
        return len(self.by_session) > _SESSIONS_PER_RANK * n_ranks + _MANY_SESSIONS


class WorldScorer:
    """Scores and verdicts of one world; see :class:`.Scorer`.

    Attributes:
        late: rows that came after their window was closed.
    """

    def __init__(self, shared: Shared, run_id: str = "", group: str = "") -> None:
        self._shared = shared
        self._run_id, self._group = run_id, group
        self._failed_in_a_row = 0
        self._settings = shared.settings
        self._attempts: dict[int, _Attempt] = {}
        self._retired_attempt = -1
        self._evaluated_attempt = -1
        self.kernels: dict[int, KernelHistograms] = {}
        self.clashes = ClashWatch(shared.settings.grace_s)
        self.engine: VerdictEngine | None = None
        self._idle_since_ns: int | None = None
        self._early_ends: Ends = {}
        self.late = 0

    # --- what comes in -----------------------------------------------------------------------

    def route(self, source: Source, first_step: int, now_ns: int) -> Stream | None:
        """Where rows of a source that was not seen before belong; None if its attempt is over."""
        if source.attempt <= self._retired_attempt:
            return None
        attempt = self._attempts.setdefault(source.attempt, _Attempt())
        session = (source.rank, *source.session)
        known = attempt.by_session.get(session)
        if known is not None:
            return known
        if not attempt.streams or attempt.streams[-1].has_redone(source, first_step):
            verdicts = self._shared.verdicts
            attempt.streams.append(Stream(self._settings, verdicts, now_ns, self._early_ends))
            self._drop_oldest_streams(attempt)
        return attempt.by_session.setdefault(session, attempt.streams[-1])

    def _drop_oldest_streams(self, attempt: _Attempt) -> None:
        """Of very many incarnations: a process that begins again and again."""
        over = len(attempt.streams) - MAX_INCARNATIONS
        gone = [stream for stream in attempt.streams[: max(over, 0)] if not stream.has_open_windows]
        if not gone:
            return
        ids = set(map(id, gone))
        attempt.streams = [each for each in attempt.streams if id(each) not in ids]
        kept = {key: each for key, each in attempt.by_session.items() if id(each) not in ids}
        attempt.by_session = kept
        self._shared.routes.clear()

    def stream_of(self, source: Source) -> Stream | None:
        attempt = self._attempts.get(source.attempt)
        session = (source.rank, *source.session)
        return None if attempt is None else attempt.by_session.get(session)

    def finish(self, source: Source, now_ns: int, final_step: int | None) -> None:
        """The rank has ended; also before its first rows have come."""
        stream = self.stream_of(source)
        if stream is not None:
            stream.finish(source, now_ns, final_step)
        elif source.attempt > self._retired_attempt and len(self._early_ends) < _MAX_EARLY_ENDS:
            self._early_ends[end_key(source)] = now_ns, final_step

    def observe(self, stream: Stream, rows: ObservationBatch, now_ns: int) -> None:
        """Rows of sources that belong to one of its streams."""
        late = self.attempt("rows", partial(stream.observe, rows, now_ns))
        if late is None:
            return
        self.count_late(late)
        self.clashes.observe(rows, now_ns)
        self._succeed("rows")

    def count_late(self, rows: int) -> None:
        self._shared.counts.late += rows
        self.late += rows

    def observe_kernels(self, source: Source, times: KernelTimes) -> None:
        """Kernel histograms of one source and interval."""
        self._kernels_of(source.attempt).add(source, times)

    def _kernels_of(self, attempt: int) -> KernelHistograms:
        held = self.kernels.get(attempt)
        if held is None:
            limit, counts = self._settings.max_kernels, self._shared.counts.kernel_times
            held = self.kernels[attempt] = KernelHistograms(limit, counts)
        return held

    # --- what goes out -----------------------------------------------------------------------

    def close_due(self, now_ns: int) -> list[WindowScores]:
        if not self._attempts and self._idle_since_ns is None:
            self._idle_since_ns = now_ns
        newest = self._attempts[max(self._attempts)].streams[-1] if self._attempts else None
        windows = self._scored(self._due_windows(now_ns, newest))
        self._evaluate(self._due_tables(now_ns, newest))
        self._retire_attempts(now_ns)
        return windows

    def evaluate_all(self) -> None:
        """At the end of input, after ``close("end")``: verdicts of all steps that remain."""
        for _, stream in self._by_attempt():
            self._evaluate(stream.close_all_tables())
        engine = self.engine
        if engine is not None:
            self._try_verdicts(lambda: self._add_changes(engine.finish()))

    def close(self, cause: ClosedBy = "idle") -> list[WindowScores]:
        """Score every open window, before the world is evicted."""
        return self._scored(
            (rows, stream, cause) for stream in self._all_streams() for rows in stream.close_all()
        )

    def shed(self) -> list[WindowScores]:
        """Free memory: score and evaluate what is open, take no further section names, and begin
        again where ranks had very many sessions."""
        windows = self.close("grace")
        for _, stream in self._by_attempt():
            self._evaluate(stream.close_all_tables())
            stream.fold_new_names()
        if any(each.has_many_sessions for each in self._attempts.values()):
            self._drop_rows()
        return windows

    def _drop_rows(self) -> None:
        self._attempts.clear()
        self._shared.routes.clear()
        self.clashes = ClashWatch(self._settings.grace_s)

    @property
    def nbytes(self) -> int:
        """Memory of all that is known of the world, roughly; kernels have a budget of their own."""
        return sum(stream.nbytes for stream in self._all_streams())

    @property
    def folded_name(self) -> str:
        """A section name that is folded because there are too many; or empty."""
        folded = (stream.folded_names for stream in self._all_streams())
        return next((name for rows, name in folded if rows), "")

    @property
    def has_rows(self) -> bool:
        """Whether rows have come; else it was restored, or knows kernels only."""
        return bool(self._attempts)

    @property
    def last_alive_ns(self) -> int:
        """Time of the newest rows or heartbeat; without rows, when that was first noticed."""
        if not self._attempts:
            return self._idle_since_ns or 0
        return max(stream.last_alive_at_ns for stream in self._all_streams())

    def restore(self, state: dict[str, Any]) -> None:
        self._verdict_engine().restore(state)

    @property
    def kernel_nbytes(self) -> int:
        return sum(kernels.nbytes for kernels in self.kernels.values())

    def open_state(self, *, has_kernels: bool = True) -> dict[str, Any]:
        """Open windows, kernel histograms if wanted, and which steps are closed, for a restart:
        JSON types and arrays."""
        kernels = self.kernels.items() if has_kernels else ()
        return {
            "kernels": [[attempt, held.state()] for attempt, held in kernels],
            "retired_attempt": self._retired_attempt,
            "evaluated_attempt": self._evaluated_attempt,
            "late": self.late,
            "attempts": [
                {
                    "number": number,
                    "streams": [stream.state() for stream in attempt.streams],
                    "sessions": [
                        [*session, attempt.streams.index(stream)]
                        for session, stream in attempt.by_session.items()
                    ],
                }
                for number, attempt in self._attempts.items()
            ],
        }

    def restore_open(self, state: Mapping[str, Any], now_ns: int) -> None:
        """Go on from :meth:`open_state`, before the first row; silence counts from ``now_ns``."""
        for saved in state["attempts"]:
            attempt = _Attempt()
            for each in saved["streams"]:
                attempt.streams.append(
                    Stream(self._settings, self._shared.verdicts, now_ns, self._early_ends)
                )
                attempt.streams[-1].restore(each, now_ns)
            attempt.by_session = {
                (rank, session_id, node): attempt.streams[index]
                for rank, session_id, node, index in saved["sessions"]
            }
            self._attempts[saved["number"]] = attempt
        for number, kernels in state.get("kernels", ()):
            self._kernels_of(number).restore(kernels)
        self._retired_attempt = state["retired_attempt"]
        self._evaluated_attempt = state["evaluated_attempt"]
        self.late = state["late"]

    def _all_streams(self) -> Iterator[Stream]:
        return (stream for attempt in self._attempts.values() for stream in attempt.streams)

    def _by_attempt(self) -> list[tuple[int, Stream]]:
        """Streams with their attempts, oldest first."""
        return [(n, s) for n in sorted(self._attempts) for s in self._attempts[n].streams]

    # --- what fails --------------------------------------------------------------------------

    def attempt(self, stage: Stage, step: Callable[[], _Result]) -> _Result | None:
        """What the step returns; None if it has failed, and there is a guard. Then the state that
        it worked on is dropped: rows of open windows, or that of the evaluation of verdicts."""
        guard = self._shared.guard
        if guard is None:
            return step()
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - the guard logs and counts it
            guard.failed(self._run_id, self._group, stage, error)
            if stage == "rows":
                self._drop_rows()
            elif stage in ("verdicts", "summary"):
                self._begin_verdicts_again()
            return None

    def _succeed(self, stage: Stage) -> None:
        if self._shared.guard is not None:
            self._shared.guard.succeeded(self._run_id, self._group, stage)

    def _begin_verdicts_again(self) -> None:
        """After an error: once with the verdicts and the memory so far, then without these, too,
        until an evaluation has succeeded."""
        before, self.engine = self.engine, None
        if before is not None and self._failed_in_a_row == 0:
            try:
                self._verdict_engine().restore(before.state())
            except Exception:  # noqa: BLE001 - the error that led here was reported
                self.engine = None
        self._failed_in_a_row += 1

    def summary(self) -> WorldSummary | None:
        """Of the newest steps; None before the first."""
        engine = self.engine
        summary = None if engine is None else self.attempt("summary", engine.summary)
        if summary is not None:
            self._succeed("summary")
        return summary

    # --- scores and verdicts -----------------------------------------------------------------

    def _scored(
        self, closed: Iterable[tuple[ObservationBatch, Stream, ClosedBy]]
    ) -> list[WindowScores]:
        """Of windows as they close; one that cannot be scored is left out."""
        windows: list[WindowScores] = []

        def score_all() -> bool:
            for window in closed:
                scores = self.attempt("scores", partial(self._score, *window))
                if scores is not None:
                    windows.append(scores)
                    self._succeed("scores")
            return True

        self.attempt("rows", score_all)
        for stream in self._all_streams():
            self._shared.counts.unfinished += stream.unfinished
            stream.unfinished = 0
        return windows

    def _score(self, rows: ObservationBatch, stream: Stream, cause: ClosedBy) -> WindowScores:
        attempt = rows.sources[0].attempt
        kernels = self.kernels.get(attempt)
        scores = score_window(
            rows,
            self._shared.references,
            world_size=stream.world_size,
            threshold=self._settings.threshold,
            min_reference_samples=self._settings.min_reference_samples,
            closed_by=cause,
            full_steps=self._settings.window_steps or 0,
            counted_kernels=None if kernels is None else kernels.of_window,
            incarnation=self._attempts[attempt].streams.index(stream),
        )
        counts = self._shared.counts
        counts.duplicates += scores.duplicates
        counts.superseded += scores.superseded
        counts.scored += len(rows) - scores.duplicates - scores.superseded
        counts.windows[cause] = counts.windows.get(cause, 0) + 1
        return scores

    def _due_windows(
        self, now_ns: int, newest: Stream | None
    ) -> Iterator[tuple[ObservationBatch, Stream, ClosedBy]]:
        """The windows that are due. Of an attempt whose steps went back, once a later stream has
        one, all of those before it are: what is over never counts as the newest."""
        for attempt in self._attempts.values():
            for at, stream in enumerate(attempt.streams):
                for rows, cause in stream.close_due(now_ns, replaced=stream is not newest):
                    for each in attempt.streams[:at]:
                        yield from ((old, each, "grace") for old in each.close_all())
                    yield rows, stream, cause

    def _due_tables(self, now_ns: int, newest: Stream | None) -> Iterator[StepTable]:
        """The blocks that are due; once a stream has one, all of the streams before it are."""
        streams = self._by_attempt()
        due = [
            list(stream.close_due_tables(now_ns, replaced=stream is not newest))
            for _, stream in streams
        ]
        newest_due = max((at for at, tables in enumerate(due) if tables), default=-1)
        for at, ((_, stream), tables) in enumerate(zip(streams, due, strict=True)):
            yield from tables
            if at < newest_due:
                yield from stream.close_all_tables()

    def _evaluate(self, tables: Iterable[StepTable]) -> None:
        """Verdicts of the tables; after an error those that follow are left out, too."""
        self._try_verdicts(partial(self._evaluate_all, tables))

    def _try_verdicts(self, step: Callable[[], None]) -> None:
        """What does not evaluate anything, as in the first steps, proves nothing."""
        before, evaluated = self.engine, 0 if self.engine is None else self.engine.evaluated
        self.attempt("verdicts", step)
        engine = self.engine
        if engine is not None and engine.evaluated > (evaluated if engine is before else 0):
            self._failed_in_a_row = 0
            self._succeed("verdicts")

    def _evaluate_all(self, tables: Iterable[StepTable]) -> None:
        """Steps of a replaced attempt are left out."""
        for table in tables:
            attempt = table.sources[0].attempt
            if attempt < self._evaluated_attempt:
                continue
            self._evaluated_attempt = attempt
            self._shared.step_times.append(StepTimes.of(table))
            self.attempt("timeouts", partial(self._shared.on_table, table))
            self._add_changes(self._verdict_engine().observe(table))

    def _add_changes(self, changes: Iterable[Verdict]) -> None:
        late = self._verdict_engine().drain_late_notifications()
        changes = sorted((*changes, *late), key=lambda v: v.at_ns) if late else changes
        self._shared.changes.extend(changes)

    def _verdict_engine(self) -> VerdictEngine:
        if self.engine is None:
            self.engine = VerdictEngine(self._shared.verdicts)
        return self.engine

    def _retire_attempts(self, now_ns: int) -> None:
        for number, attempt in list(self._attempts.items()):
            if number == max(self._attempts):
                continue
            last_row_ns = max(stream.last_row_at_ns for stream in attempt.streams)
            is_open = any(stream.has_open_windows for stream in attempt.streams)
            if not is_open and now_ns - last_row_ns >= RETIRE_S * 1e9:
                del self._attempts[number]
                self.kernels.pop(number, None)
                self.clashes.drop_attempt(number)
                self._shared.routes.clear()
                self._retired_attempt = max(self._retired_attempt, number)
