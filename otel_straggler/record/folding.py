"""Several runs of a section in one step as one span, above the span budget.

A fold is exact in count, sum, shortest and longest run, and has a sketch of the lengths. It holds
runs of one batch: what is not sent yet stays in no other memory than before, and a process that is
killed loses no more. A step that ends in the next batch gets another span.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from otel_straggler.record.fold_rule import FoldRule
from otel_straggler.record.recorder import Record, is_failure
from otel_straggler.wire.folded_spans import LONGEST_NS, MOST_RUNS

_MOST_TOKENS = 2**63 - 1

Chosen = tuple[Record, bytes]
"""A record that is sent, and its trace id."""

_Key = tuple[str, bytes, int, str, str, str, str, bool]


@dataclass(frozen=True, slots=True)
class Fold:
    """Runs that are sent as one span.

    Attributes:
        records: in order of their ends; what all have in common is read from the first.
        trace_id: of all.
    """

    records: list[Record]
    trace_id: bytes

    @property
    def start_ns(self) -> int:
        """First start."""
        return min(record[0][2] for record in self.records)

    @property
    def end_ns(self) -> int:
        """Last end."""
        return max(r[0][2] + length_of(r[0][2], r[2]) for r in self.records)

    @property
    def tokens(self) -> int:
        """Work of all together."""
        works = (record[0][4] for record in self.records)
        told = sum(work.tokens for work in works if work is not None and work.tokens > 0)
        return min(told, _MOST_TOKENS)

    def lengths_ns(self) -> list[int]:
        """Of each run."""
        return [length_of(record[0][2], record[2]) for record in self.records]


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
        if not self._rule.is_on:
            return [*chosen]
        places = [place for place, (record, _) in enumerate(chosen) if _may_fold(record)]
        found = (chosen[place][0] for place in places)
        self._rule.decide((r[0][0].name, r[0][3].step_span, r[2]) for r in found)
        if not self._rule.folded:
            return [*chosen]
        folded = _folded(chosen, places, self._rule.folded)
        for one in folded:
            if isinstance(one, Fold):
                name = one.records[0][0][0].name
                self.folded_runs[name] = self.folded_runs.get(name, 0) + len(one.records)
        return folded


def length_of(start_ns: int, end_ns: int) -> int:
    """A run lasts 1 ns at least: a span of no duration is bad telemetry."""
    return end_ns - start_ns if end_ns > start_ns else 1


def _may_fold(record: Record) -> bool:
    """A failed run stands for itself, and so does a step."""
    (_, span, start_ns, context, _), _, end_ns, error, _ = record
    if span == context.step_span or end_ns - start_ns >= LONGEST_NS:
        return False
    return error is None or not is_failure(error)


def _folded(chosen: list[Chosen], places: list[int], names: Container[str]) -> list[Chosen | Fold]:
    """The batch with folds of two runs and more."""
    placed: list[Chosen | Fold | None] = [*chosen]
    open_folds: dict[_Key, list[int]] = {}
    for place in places:
        record, trace_id = chosen[place]
        if record[0][0].name not in names:
            continue
        key = _key(record, trace_id)
        members = open_folds.get(key)
        if members is None or len(members) == MOST_RUNS:
            if members is not None:
                _put(members, chosen, placed)
            open_folds[key] = [place]
        else:
            members.append(place)
    for members in open_folds.values():
        _put(members, chosen, placed)
    return [one for one in placed if one is not None]


def _put(members: list[int], chosen: list[Chosen], placed: list[Chosen | Fold | None]) -> None:
    if len(members) > 1:
        fold = Fold([chosen[place][0] for place in members], chosen[members[0]][1])
        for place in members:
            placed[place] = None
        placed[members[-1]] = fold


def _key(record: Record, trace_id: bytes) -> _Key:
    (timer, _, _, context, work), enclosing, _, _, _ = record
    return (
        context.epoch.session_id,
        trace_id,
        context.step_span,
        timer.name,
        timer.kind,
        context.phase,
        "" if enclosing is None else enclosing[0].name,
        work is not None and work.tokens >= 0,
    )
