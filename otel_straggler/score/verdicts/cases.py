"""The book of all subjects that were ever suspected: their standings and the changes of state."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from otel_straggler.model.verdict import Verdict
from otel_straggler.score.verdicts.paging import Page, PageBook
from otel_straggler.score.verdicts.sentences import sentence
from otel_straggler.score.verdicts.standing import ACTIVE, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """When an evaluation happens: steps observed so far (a count), newest step, sender's time."""

    steps: int
    step: int | None
    at_ns: int


class Cases:
    """Keeps one :class:`Standing` per subject. State: a few hundred bytes per change."""

    def __init__(self, max_changes: int) -> None:
        self._max_changes = max_changes
        self._standings: dict[str, Standing] = {}
        self._changes: list[Verdict] = []
        self._newest: dict[str, int] = {}
        self._costs: dict[str, float] = {}
        self._most = max_changes
        self._page_book = PageBook(max_changes)
        self._late_pages: deque[Verdict] = deque(maxlen=max_changes)

    def standing(self, subject_id: str) -> Standing:
        return self._standings.get(subject_id) or Standing()

    def open_subjects(self, scope: str) -> list[Verdict]:
        """The newest verdict of every subject of this scope that is not ok or recovered."""
        return [
            verdict
            for verdict in self.latest()
            if verdict.scope == scope and verdict.state not in ("ok", "recovered")
        ]

    def latest(self) -> list[Verdict]:
        """The newest verdict of every subject."""
        return [self._changes[at] for at in self._newest.values()]

    def costs(self) -> list[float]:
        """GPU seconds per hour of each that is called slow and was found so by its newest
        evaluation: while a fault that comes and goes is not there, it costs nothing."""
        return list(self._costs.values())

    @property
    def changes(self) -> tuple[Verdict, ...]:
        """In order; the last of each subject has the newest numbers."""
        return tuple(self._changes)

    @property
    def pages(self) -> tuple[Page, ...]:
        """The newest ``max_changes`` episodes in which somebody was called, in order."""
        return self._page_book.pages

    def new_late_pages(self) -> list[Verdict]:
        """Who has begun to page since the last call without a change of state: the slowdown has
        grown. They are no entries of ``changes``."""
        new = list(self._late_pages)
        self._late_pages.clear()
        return new

    def take(
        self,
        draft: Verdict,
        *,
        flagged: bool,
        sure: bool,
        clear: bool,
        floor: float,
        now: Now,
        confirmable: bool = True,
    ) -> Verdict | None:
        """One evaluation of one subject; the verdict if its state has changed.

        Args:
            draft: all but state and sentence; of a subject that is no longer flagged, its
                newest verdict.
            flagged, sure, clear, confirmable, floor: as :class:`Standing` has them.
        """
        standing = self._standings.setdefault(draft.subject_id, Standing())
        if flagged and standing.state in ("ok", "recovered"):
            standing.since_step = draft.since_step
            standing.confirmed_step = None
            standing.floor = floor
        changed = standing.take(
            flagged=flagged,
            sure=sure,
            clear=clear,
            confirmable=confirmable,
            steps=now.steps,
            at_ns=now.at_ns,
        )
        if changed and standing.state in ACTIVE:
            standing.confirmed_step = now.step
        verdict = self._finished(draft, standing, flagged=flagged)
        self._costs.pop(draft.subject_id, None)
        if flagged and verdict.state in ACTIVE:
            self._costs[draft.subject_id] = verdict.gpu_seconds_lost_per_hour
        if changed:
            verdict = replace(verdict, at_step=now.step, at_ns=now.at_ns)
            verdict = self._append(replace(verdict, sentence=sentence(verdict)))
            self._page_book.note(verdict, step=now.step, at_ns=now.at_ns)
            return verdict
        if flagged and draft.subject_id in self._newest:
            at = self._newest[draft.subject_id]
            old = self._changes[at]
            verdict = replace(verdict, at_step=old.at_step, at_ns=old.at_ns)
            self._changes[at] = verdict = replace(verdict, sentence=sentence(verdict))
            if self._page_book.note(verdict, step=now.step, at_ns=now.at_ns):
                self._late_pages.append(replace(verdict, at_step=now.step, at_ns=now.at_ns))
        elif standing.state == "ok":
            del self._standings[draft.subject_id]
        return None

    def _finished(self, draft: Verdict, standing: Standing, *, flagged: bool) -> Verdict:
        active = standing.state in ACTIVE
        return replace(
            draft,
            state=standing.state,
            since_step=standing.since_step,
            confirmed_step=standing.confirmed_step,
            pages=draft.pages and active,
            confidence=draft.confidence if active else min(draft.confidence, 0.5),
            gpu_seconds_lost_per_hour=draft.gpu_seconds_lost_per_hour if flagged or active else 0.0,
        )

    def _append(self, verdict: Verdict) -> Verdict:
        self._newest[verdict.subject_id] = len(self._changes)
        self._changes.append(verdict)
        if len(self._changes) > self._most:
            self._drop_oldest()
        return verdict

    def _drop_oldest(self) -> None:
        """Forget the older half, but for the newest verdict of subjects that are in trouble."""
        half = self._max_changes // 2
        end = len(self._changes) - half
        kept = [
            verdict
            for at, verdict in enumerate(self._changes[:end])
            if self._newest[verdict.subject_id] == at and verdict.state not in ("ok", "recovered")
        ]
        self._changes = [*kept, *self._changes[end:]]
        self._newest = {v.subject_id: at for at, v in enumerate(self._changes)}
        # Where nearly all are in trouble little can go: not to be tried at every change.
        self._most = max(self._max_changes, len(self._changes) + half)

    # --- over restarts -------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """JSON's types."""
        return {
            "standings": {name: asdict(value) for name, value in self._standings.items()},
            "changes": [asdict(verdict) for verdict in self._changes],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Unknown fields of a newer version are left out."""
        known = {field.name for field in fields(Standing)}
        for name, value in state.get("standings", {}).items():
            standing = Standing(**{k: v for k, v in value.items() if k in known})
            standing.flagged_at = []  # counted from the start of a process
            self._standings[name] = standing
        known = {field.name for field in fields(Verdict)}
        for value in state.get("changes", []):
            verdict = self._append(Verdict(**{k: v for k, v in value.items() if k in known}))
            self._page_book.note(verdict, step=verdict.at_step, at_ns=verdict.at_ns)
