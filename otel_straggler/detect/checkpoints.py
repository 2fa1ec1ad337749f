"""Saves of checkpoints of one world: what the last one has cost, and verdicts on slow writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from otel_straggler.detect.slow_writers import (
    MIN_RANKS,
    SAVES,
    SlowWriter,
    slow_writers,
    slowest_writer,
)
from otel_straggler.detect.verdicts.sentences import sentence
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

SECTION: Final = "checkpoint_write"
_MAX_CHANGES: Final = 200
_WAITS: Final = 0.5
"""Part of a save that the training stands still, from which on it waits for the slowest writer."""


@dataclass(frozen=True, slots=True)
class RankSave:
    """What one save has cost one rank: seconds until it was complete, of these writing its own
    part, and standing still; and bytes that it wrote."""

    save_s: float
    write_s: float
    blocking_s: float
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One save, of the ranks that have reported it.

    Attributes:
        step: None if unknown.
        at_s: wall clock time of its first report.
    """

    step: int | None
    at_s: float
    ranks: Mapping[int, RankSave]

    @property
    def write_s(self) -> dict[int, float]:
        return {rank: its.write_s for rank, its in self.ranks.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSave:
    """The newest save of a world.

    Attributes:
        save_s, blocking_s: of the slowest rank.
        size_bytes: of all ranks.
        n_ranks: that have reported it.
        slowest: the rank that took much longer to write than the others; None if none did.
        interval_s, mtbf_s: between saves, and between failures as expected, where a rank computes
            the interval; 0: none does.
    """

    step: int | None
    at_s: float
    save_s: float
    blocking_s: float
    size_bytes: float
    n_ranks: int
    slowest: SlowWriter | None = None
    interval_s: float = 0.0
    mtbf_s: float = 0.0

    @classmethod
    def of(cls, save: Save, interval_s: float = 0.0, mtbf_s: float = 0.0) -> LastSave:
        ranks = save.ranks.values()
        return cls(
            step=save.step,
            at_s=save.at_s,
            save_s=max(its.save_s for its in ranks),
            blocking_s=max(its.blocking_s for its in ranks),
            size_bytes=sum(its.size_bytes for its in ranks),
            n_ranks=len(save.ranks),
            slowest=slowest_writer(save.write_s),
            interval_s=interval_s,
            mtbf_s=mtbf_s,
        )

    @property
    def text(self) -> str:
        """
        >>> LastSave(step=400, at_s=0.0, save_s=12.3, blocking_s=0.41, size_bytes=2.5e9, n_ranks=8,
        ...     interval_s=412.0, mtbf_s=108_000.0).text
        'Checkpoint at step 400: 2.5 GB in 12.3 s, of which training waited 0.4 s. Saved every \
412 s, the interval that loses the least time (Daly) if a failure is expected every 30 h.'
        """
        at = "" if self.step is None else f" at step {self.step}"
        size = f"{_size_text(self.size_bytes)} in " if self.size_bytes else ""
        text = (
            f"Checkpoint{at}: {size}{self.save_s:.1f} s, of which training waited "
            f"{self.blocking_s:.1f} s"
        )
        if self.slowest is not None:
            its = self.slowest
            text += f"; rank {its.rank} wrote {its.ratio:.1f}x as long as the others"
        if self.interval_s > 0.0:
            text += (
                f". Saved every {self.interval_s:.0f} s, the interval that loses the least time "
                f"(Daly) if a failure is expected every {self.mtbf_s / 3_600.0:.3g} h"
            )
        return f"{text}."


def _size_text(size_bytes: float) -> str:
    for name, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {name}"
    return f"{size_bytes / 1e3:.1f} kB"


class WriterVerdicts:
    """Verdicts on the writers of one world; one thread owns it.

    Attributes:
        changes: of state, in order; the last of each subject has its newest numbers.
    """

    def __init__(self) -> None:
        self.changes: tuple[Verdict, ...] = ()

    def observe(self, saves: Sequence[Save], sources: Mapping[int, Source]) -> None:
        """Evaluate the newest saves, all of which are complete.

        Args:
            saves: the oldest first; the last five count.
            sources: of their ranks.
        """
        if not saves:
            return
        saves = saves[-SAVES:]
        newest = {verdict.subject_id: verdict for verdict in self.changes}
        slow = {each.rank: each for each in slow_writers([save.write_s for save in saves])}
        for rank, source in sources.items():
            if rank not in saves[-1].ranks:
                continue
            before = newest.get(_subject(source))
            was_slow = before is not None and before.state in CALLED_SLOW
            if rank in slow:
                verdict = _slow_verdict(source, slow[rank], saves)
                if before is not None and was_slow:
                    verdict = replace(
                        verdict,
                        since_step=before.since_step,
                        since_ns=before.since_ns,
                        confirmed_step=before.confirmed_step,
                        at_step=before.at_step,
                        at_ns=before.at_ns,
                    )
                    self.changes = tuple(c for c in self.changes if c is not before)
                self._append(verdict)
            elif before is not None and was_slow and _is_well(rank, saves):
                self._append(
                    replace(
                        before,
                        state="recovered",
                        attempt=source.attempt,
                        at_step=saves[-1].step,
                        at_ns=int(saves[-1].at_s * 1e9),
                    )
                )

    def _append(self, verdict: Verdict) -> None:
        verdict = replace(verdict, sentence=sentence(verdict))
        self.changes = (*self.changes, verdict)[-_MAX_CHANGES:]


def _is_well(rank: int, saves: Sequence[Save]) -> bool:
    """Whether there were enough ranks to compare it with."""
    return sum(rank in save.ranks and len(save.ranks) >= MIN_RANKS for save in saves) > 0


def _subject(source: Source) -> str:
    return f"checkpoint/{source.key}"


def _slow_verdict(source: Source, slow: SlowWriter, saves: Sequence[Save]) -> Verdict:
    """Confirmed: it is slow in most of the last saves. It never pages."""
    newest = saves[-1]
    return Verdict(
        run_id=source.run_id,
        group=source.group,
        attempt=source.attempt,
        subject_id=_subject(source),
        scope="rank",
        rank=source.rank,
        node=source.node,
        role=source.role,
        section=SECTION,
        cause="checkpoint",
        state="confirmed",
        slowdown=slow.ratio,
        since_step=saves[0].step,
        since_ns=int(saves[0].at_s * 1e9),
        confirmed_step=newest.step,
        at_step=newest.step,
        at_ns=int(newest.at_s * 1e9),
        confidence=0.95,
        gpu_seconds_lost_per_hour=_lost_per_hour(slow, saves),
        began="became",
        n_peers=len(newest.ranks) - 1,
        own_s=slow.own_s,
        peers_s=slow.own_s - slow.excess_s,
        on_gpu=source.reports_gpu,
        detail=f"{slow.excess_s:.1f} s more in each",
    )


def _lost_per_hour(slow: SlowWriter, saves: Sequence[Save]) -> float:
    """Seconds of all ranks, if they stand still while it writes; 0 if saves are asynchronous."""
    newest = saves[-1]
    waits = median(its.blocking_s for its in newest.ranks.values())
    span_s = newest.at_s - saves[0].at_s
    if waits < _WAITS * max(its.save_s for its in newest.ranks.values()) or span_s <= 0.0:
        return 0.0
    per_hour = 3_600.0 * (len(saves) - 1) / span_s
    return min(slow.excess_s, waits) * per_hour * len(newest.ranks)
