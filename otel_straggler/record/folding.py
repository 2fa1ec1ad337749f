"""Several runs of a section in one step as one span, above the span budget.

A fold is exact in count, sum, shortest and longest run, and has a sketch of the lengths. It holds
runs of one batch: what is not sent yet stays in no other memory than before, and a process that is
killed loses no more. A step that ends in the next batch gets another span.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from otel_straggler.record.fold_rule import FoldRule
from otel_straggler.record.recorder import Epoch, Record, is_failure
from otel_straggler.wire.fold_sketch import LONGEST_NS
from otel_straggler.wire.folded_spans import MOST_RUNS

_MOST_TOKENS = 2**63 - 1

Chosen = tuple[Record, bytes]
"""A record that is sent, and its trace id."""

_Key = tuple[Epoch, bytes, int, str, str, str, str, bool]


@dataclass(slots=True)
class Fold:
    """Runs that are sent as one span.

    Attributes:
        first: the record that ended first; what all have in common is read from it.
        trace_id: of all.
        start_ns, end_ns: from the first start to the last end.
        tokens: work of all together.
        lengths_ns: of each.
    """

    first: Record
    trace_id: bytes
    start_ns: int
    end_ns: int
    tokens: int = 0
    lengths_ns: list[int] = field(default_factory=list)

    def take(self, record: Record) -> None:
        frame, _, end_ns, _, _ = record
        start_ns = frame[2]
        length_ns = length_of(start_ns, end_ns)
        self.start_ns = min(self.start_ns, start_ns)
        self.end_ns = max(self.end_ns, start_ns + length_ns)
        self.lengths_ns.append(length_ns)
        work = frame[4]
        if work is not None and work.tokens > 0:
            self.tokens = min(self.tokens + work.tokens, _MOST_TOKENS)


class Folding:
    """Folds what the budget asks for, and counts it.

    Args:
        spans_per_s: the budget; 0: nothing is ever folded.

    Attributes:
        folded_runs: runs so far that went out in spans for several, by section.
    """

    def __init__(self, spans_per_s: int) -> None:
        self._rule = FoldRule(spans_per_s)
        self.folded_runs: dict[str, int] = {}

    @property
    def sections(self) -> frozenset[str]:
        """Names of the sections that are folded now."""
        return self._rule.folded

    def fold(self, chosen: list[Chosen]) -> list[Chosen | Fold]:
        """One batch, with folds where the last of their runs has stood."""
        if self._rule.is_on:
            for record, _ in chosen:
                if _may_fold(record):
                    frame = record[0]
                    self._rule.count(frame[0].name, frame[3].step_span, record[2])
            self._rule.decide()
        if not self._rule.folded:
            return [*chosen]
        found = _folded(chosen, self._rule.folded)
        for one in found:
            if isinstance(one, Fold):
                name = one.first[0][0].name
                self.folded_runs[name] = self.folded_runs.get(name, 0) + len(one.lengths_ns)
        return found


def length_of(start_ns: int, end_ns: int) -> int:
    """A run lasts 1 ns at least: a span of no duration is bad telemetry."""
    return end_ns - start_ns if end_ns > start_ns else 1


def _may_fold(record: Record) -> bool:
    """A failed run stands for itself, and so does a step."""
    (_, span, start_ns, context, _), _, end_ns, error, _ = record
    if span == context.step_span or end_ns - start_ns >= LONGEST_NS:
        return False
    return error is None or not is_failure(error)


def _folded(chosen: list[Chosen], names: Container[str]) -> list[Chosen | Fold]:
    """The batch with folds of two runs and more."""
    placed: list[Chosen | Fold | None] = [*chosen]
    open_folds: dict[_Key, tuple[Fold, int]] = {}
    for place, (record, trace_id) in enumerate(chosen):
        name = record[0][0].name
        if name not in names or not _may_fold(record):
            continue
        key = _key(record, trace_id)
        fold, before = open_folds.get(key, (None, place))
        if fold is None or len(fold.lengths_ns) == MOST_RUNS:
            fold = Fold(record, trace_id, record[0][2], record[0][2])
        else:
            placed[before] = None
            placed[place] = fold
        fold.take(record)
        open_folds[key] = fold, place
    return [one for one in placed if one is not None]


def _key(record: Record, trace_id: bytes) -> _Key:
    (timer, _, _, context, work), enclosing, _, _, _ = record
    around = "" if enclosing is None else enclosing[0].name
    has_tokens = work is not None and work.tokens >= 0
    return (
        context.epoch,
        trace_id,
        context.step_span,
        timer.name,
        timer.kind,
        context.phase,
        around,
        has_tokens,
    )
