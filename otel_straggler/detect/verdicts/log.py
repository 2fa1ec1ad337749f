"""Subjects that were ever suspected: their states, the changes of state, and who was notified."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.sentences import sentence
from otel_straggler.model.verdict import CALLED_SLOW, State, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTime:
    """When an evaluation happens: steps observed so far (a count), newest step, sender's time."""

    steps: int
    step: int | None
    at_ns: int


class VerdictLog:
    """Keeps one :class:`Standing` per subject. State: a few hundred bytes per change."""

    def __init__(self, max_changes: int) -> None:
        self._max_changes = max_changes
        self._standings: dict[str, SubjectState] = {}
        self._changes: list[Verdict] = []
        self._newest: dict[str, int] = {}
        self._costs: dict[str, float] = {}
        self._max = max_changes
        self._page_book = NotificationLog(max_changes)
        self._late_pages: deque[Verdict] = deque(maxlen=max_changes)

    def state_of(self, subject_id: str) -> SubjectState:
        return self._standings.get(subject_id) or SubjectState()

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
    def notifications(self) -> tuple[Notification, ...]:
        """The newest ``max_changes`` episodes in which somebody was notified, in order."""
        return self._page_book.notifications

    def drain_late_notifications(self) -> list[Verdict]:
        """Who has begun to page since the last call without a change of state: the slowdown has
        grown. They are no entries of ``changes``."""
        new = list(self._late_pages)
        self._late_pages.clear()
        return new

    def record(
        self,
        draft: Verdict,
        *,
        flagged: bool,
        now: EvaluationTime,
        sure: bool = False,
        clear: bool = False,
        floor: float = 0.0,
        confirmable: bool = True,
    ) -> Verdict | None:
        """One evaluation of one subject; the verdict if its state has changed.

        Args:
            draft: all but state and sentence; of a subject that is no longer flagged, its
                newest verdict.
            flagged, sure, clear, confirmable, floor: as :class:`Standing` has them.
        """
        standing = self._standings.setdefault(draft.subject_id, SubjectState())
        if flagged and standing.state in ("ok", "recovered"):
            standing.since_step = draft.since_step
            standing.confirmed_step = None
            standing.floor = floor
        changed = standing.observe(
            flagged=flagged,
            sure=sure,
            clear=clear,
            confirmable=confirmable,
            steps=now.steps,
            at_ns=now.at_ns,
        )
        if changed and standing.state in CALLED_SLOW:
            standing.confirmed_step = now.step
        verdict = self._finished(draft, standing, flagged=flagged)
        self._costs.pop(draft.subject_id, None)
        if flagged and verdict.state in CALLED_SLOW:
            self._costs[draft.subject_id] = verdict.gpu_seconds_lost_per_hour
        if changed:
            verdict = replace(verdict, at_step=now.step, at_ns=now.at_ns)
            verdict = self._append(replace(verdict, sentence=sentence(verdict)))
            self._page_book.record(verdict, step=now.step, at_ns=now.at_ns)
            return verdict
        if flagged and draft.subject_id in self._newest:
            at = self._newest[draft.subject_id]
            old = self._changes[at]
            verdict = replace(verdict, at_step=old.at_step, at_ns=old.at_ns)
            self._changes[at] = verdict = replace(verdict, sentence=sentence(verdict))
            if self._page_book.record(verdict, step=now.step, at_ns=now.at_ns):
                self._late_pages.append(replace(verdict, at_step=now.step, at_ns=now.at_ns))
        elif standing.state == "ok":
            del self._standings[draft.subject_id]
        return None

    def _finished(self, draft: Verdict, standing: SubjectState, *, flagged: bool) -> Verdict:
        active = standing.state in CALLED_SLOW
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
        if len(self._changes) > self._max:
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
        self._max = max(self._max_changes, len(self._changes) + half)

    # --- over restarts -------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """JSON's types."""
        return {
            "standings": {name: asdict(value) for name, value in self._standings.items()},
            "changes": [asdict(verdict) for verdict in self._changes],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Unknown fields of a newer version are left out."""
        known = {field.name for field in fields(SubjectState)}
        for name, value in state.get("standings", {}).items():
            standing = SubjectState(**{k: v for k, v in value.items() if k in known})
            standing.flagged_at = []  # counted from the start of a process
            self._standings[name] = standing
        known = {field.name for field in fields(Verdict)}
        for value in state.get("changes", []):
            verdict = self._append(Verdict(**{k: v for k, v in value.items() if k in known}))
            self._page_book.record(verdict, step=verdict.at_step, at_ns=verdict.at_ns)


APART_STEPS = 10
"""Evaluations that confirm each other lie so far apart, and at most twice as far."""
HOLD = 3
"""Evaluations in a row without a finding that end a suspicion, or a confirmed fault."""
FLAPS = 3
FLAP_WITHIN_NS = 3_600 * 10**9
"""So many confirmations within an hour are one flapping subject, not many alarms."""


@dataclass(slots=True)
class SubjectState:
    """One subject.

    Attributes:
        state: now.
        since_step: first step of the present trouble; None if not known.
        confirmed_step: newest step seen when it was confirmed; None before.
        floor: the least excess that counted when it was flagged; it is clear at half of it.
    """

    state: State = "ok"
    since_step: int | None = None
    confirmed_step: int | None = None
    floor: float = 0.0
    flagged_at: list[int] = field(default_factory=list)
    confirmed_at_ns: list[int] = field(default_factory=list)
    quiet: int = 0

    def observe(
        self,
        *,
        flagged: bool,
        sure: bool,
        clear: bool,
        steps: int,
        at_ns: int,
        confirmable: bool = True,
    ) -> bool:
        """One evaluation; True if the state has changed.

        Args:
            flagged: beyond its peers now.
            sure: confirmed at once (CUSUM, verified).
            clear: as fast as its peers again. Neither flagged nor clear: unchanged.
            confirmable: the evidence allows more than a suspicion.
            steps: observed so far, a count.
            at_ns: sender's time of the newest step.
        """
        before = self.state
        if flagged or sure:
            self.quiet = 0
            self._flag(steps, at_ns, sure=sure, confirmable=confirmable)
        elif self._is_quiet(clear):
            self._end(at_ns)
        return self.state != before

    def _flag(self, steps: int, at_ns: int, *, sure: bool, confirmable: bool) -> None:
        again = any(APART_STEPS <= steps - at <= 2 * APART_STEPS for at in self.flagged_at)
        self.flagged_at = [at for at in self.flagged_at if steps - at <= 2 * APART_STEPS]
        self.flagged_at.append(steps)
        if self.state in CALLED_SLOW:
            return
        if not (confirmable and (sure or again)):
            self.state = "suspect"
            return
        recent = [at for at in self.confirmed_at_ns if at_ns - at < FLAP_WITHIN_NS]
        self.confirmed_at_ns = [*recent, at_ns]
        self.state = "flapping" if len(self.confirmed_at_ns) >= FLAPS else "confirmed"

    def _is_quiet(self, clear: bool) -> bool:
        """A suspicion ends without findings; what was confirmed must be clear."""
        if self.state in ("suspect", "recovered") or clear:
            self.quiet += 1
        else:
            self.quiet = 0
        return self.quiet >= HOLD

    def _end(self, at_ns: int) -> None:
        if self.state == "suspect":
            self.state = "recovered" if self.confirmed_at_ns else "ok"
        elif self.state == "confirmed" or self._has_calmed_down(at_ns):
            self.state = "recovered"

    def _has_calmed_down(self, at_ns: int) -> bool:
        last_ns = self.confirmed_at_ns[-1] if self.confirmed_at_ns else 0
        return self.state == "flapping" and at_ns - last_ns >= FLAP_WITHIN_NS


def would_page(verdict: Verdict, settings: VerdictSettings) -> bool:
    """Whether this would page, once it is confirmed.

    It is about a rank or a host that is known to be the culprit, among peers whose layout was
    reported; the slowdown and the part of the job's GPU time that is lost reach ``page_slowdown``
    and ``page_loss``. An unknown number (NaN) does not.
    """
    return (
        verdict.scope in ("rank", "host")
        and verdict.is_localised
        and not verdict.is_inferred
        and verdict.slowdown >= settings.page_slowdown
        and verdict.loss_share >= settings.page_loss
    )


def decided_anew(verdict: Verdict, settings: VerdictSettings) -> Verdict:
    """A recorded change of state as it would have been under other settings for paging.

    What was recorded before the lost share was kept (NaN) pages if it did then and reaches the
    slowdown: with less known there is no better answer.
    """
    if math.isnan(verdict.loss_share):
        pages = verdict.pages and verdict.slowdown >= settings.page_slowdown
    else:
        pages = verdict.state in CALLED_SLOW and would_page(verdict, settings)
    return replace(verdict, pages=pages)


@dataclass(slots=True, kw_only=True)
class Notification:
    """One call.

    Attributes:
        verdict: as it was when it began to page.
        at_step, at_ns: newest step and sender's time then; the step is None where there are none.
        ended_ns: sender's time when the subject had recovered; None if it has not.
    """

    verdict: Verdict
    at_step: int | None
    at_ns: int
    ended_ns: int | None = None


class NotificationLog:
    """One page per episode: from the first evaluation at which a confirmed subject pages, until
    it has recovered. A slowdown that goes up and down around the least that counts is one episode,
    and so is a flapping subject, which is not dropped for an hour.

    Args:
        max_pages: kept, the newest.
    """

    def __init__(self, max_pages: int) -> None:
        self._pages: deque[Notification] = deque(maxlen=max_pages)
        self._open: dict[tuple[str, str], Notification] = {}

    @property
    def notifications(self) -> tuple[Notification, ...]:
        """In the order in which they began."""
        return tuple(self._pages)

    def record(self, verdict: Verdict, *, step: int | None, at_ns: int) -> bool:
        """The newest verdict of a subject, at this moment; whether it begins to page. Cost:
        O(1)."""
        subject = verdict.group, verdict.subject_id
        if verdict.state not in CALLED_SLOW:
            ended = self._open.pop(subject, None)
            if ended is not None:
                ended.ended_ns = at_ns
        elif verdict.pages and subject not in self._open:
            page = Notification(verdict=verdict, at_step=step, at_ns=at_ns)
            self._open[subject] = page
            self._pages.append(page)
            return True
        return False
