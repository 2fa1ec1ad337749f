"""Which sections are folded, so that a rank sends no more spans than its budget.

Judged is the time of the records, not the clock, so the same records are always judged alike, here
and in C++ (fold_rule.hpp).

- Too many spans, and the section is folded at once that saves most, then the next, until the rest
  fits. Sections with one run a step save nothing and are left alone.
- A folded section is let go when with it the spans would have stayed under 80 % of the budget for
  30 seconds without a break. So nothing flaps from second to second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SECOND_NS = 1e9
_QUIET_NS = 30e9
_MARGIN = 0.8


@dataclass(slots=True)
class _Section:
    """What was counted since the second began; runs of one group would be one span."""

    runs: int = 0
    groups: int = 0
    group: int = 0
    batch: int = 0
    quiet_ns: float = 0.0
    folded: bool = False

    @property
    def saving(self) -> int:
        return self.runs - self.groups


class FoldRule:
    """Decides batch by batch.

    Args:
        spans_per_s: the budget; 0: nothing is ever folded.

    Attributes:
        folded: names of the sections that are folded now.
    """

    def __init__(self, spans_per_s: int) -> None:
        self._budget = float(spans_per_s)
        self._sections: dict[str, _Section] = {}
        self._batch = 1
        self._begin_ns: int | None = None
        self._last_ns = 0
        self.folded: frozenset[str] = frozenset()

    @property
    def is_on(self) -> bool:
        return self._budget > 0.0

    def decide(self, runs: Iterable[tuple[str, int, int]]) -> None:
        """Judge the next batch, before it is encoded.

        Args:
            runs: those that could be folded, in order: section, a number that tells what it would
                be folded with, end.
        """
        self._count(runs)
        self._batch += 1
        if self._begin_ns is None:
            return
        self._begin_ns = min(self._begin_ns, self._last_ns)
        lasted_ns = float(self._last_ns - self._begin_ns)
        elapsed_ns = max(_SECOND_NS, lasted_ns)
        self._fold_more(elapsed_ns)
        if lasted_ns >= _SECOND_NS:
            self._fold_less(elapsed_ns)
            for section in self._sections.values():
                section.runs = section.groups = 0
            self._begin_ns = self._last_ns
        self.folded = frozenset(name for name, s in self._sections.items() if s.folded)

    def _count(self, runs: Iterable[tuple[str, int, int]]) -> None:
        sections, batch, end_ns = self._sections, self._batch, None
        for name, group, end_ns in runs:
            section = sections.get(name)
            if section is None:
                section = sections[name] = _Section()
            if section.group != group or section.batch != batch:
                section.batch = batch
                section.group = group
                section.groups += 1
            section.runs += 1
            if self._begin_ns is None:
                self._begin_ns = end_ns
        if end_ns is not None:
            self._last_ns = end_ns

    def _spans(self) -> int:
        return sum(s.groups if s.folded else s.runs for s in self._sections.values())

    def _fold_more(self, elapsed_ns: float) -> None:
        rest = self._spans()
        if rest * _SECOND_NS <= self._budget * elapsed_ns:
            return
        hot = [(-s.saving, _utf8(n), s) for n, s in self._sections.items() if not s.folded]
        for _, _, section in sorted(hot, key=_saving_and_name):
            if section.saving == 0 or rest * _SECOND_NS <= self._budget * elapsed_ns:
                return
            section.folded = True
            section.quiet_ns = 0.0
            rest -= section.saving

    def _fold_less(self, elapsed_ns: float) -> None:
        rest = self._spans()
        folded = [(s.saving, _utf8(n), s) for n, s in self._sections.items() if s.folded]
        for saving, _, section in sorted(folded, key=_saving_and_name):
            if (rest + saving) * _SECOND_NS <= _MARGIN * self._budget * elapsed_ns:
                section.quiet_ns += elapsed_ns
                rest += saving
            else:
                section.quiet_ns = 0.0
            section.folded = section.quiet_ns < _QUIET_NS


def _saving_and_name(entry: tuple[int, bytes, _Section]) -> tuple[int, bytes]:
    return entry[:2]


def _utf8(name: str) -> bytes:
    return name.encode("utf-8", "replace")
