"""Subjects that were ever suspected: their states and the changes of state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from otel_straggler.detect.verdicts.notifications import Notification, NotificationLog
from otel_straggler.detect.verdicts.sentences import sentence
from otel_straggler.detect.verdicts.sentences import subject as name_of
from otel_straggler.model.decoding import read_as
from otel_straggler.model.verdict import CALLED_SLOW, State, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTime:
    """Time of an evaluation: steps observed (a count), newest step, and sender's time."""

    steps: int
    step: int | None
    at_ns: int


MIN_CONFIDENCE: Final = 0.6
"""What is less sure is a suspicion."""
WELL: Final[tuple[State, ...]] = ("ok", "recovered")


class VerdictLog:
    """States of all subjects and their changes. State: a few hundred bytes per change."""

    def __init__(self, max_changes: int) -> None:
        self._max_changes = max_changes
        self._subjects: dict[str, SubjectState] = {}
        self._changes: list[Verdict] = []
        self._newest: dict[str, int] = {}
        self._costs: dict[str, Verdict] = {}
        self._max = max_changes
        self._notifications = NotificationLog(max_changes)
        self._late_notifications: deque[Verdict] = deque(maxlen=max_changes)

    def state_of(self, subject_id: str) -> SubjectState:
        return self._subjects.get(subject_id) or SubjectState()

    def open_subjects(self, scope: str) -> list[Verdict]:
        """The newest verdict of every subject of this scope in trouble."""
        return [
            verdict
            for verdict in self.latest()
            if verdict.scope == scope and verdict.state not in WELL
        ]

    def is_paging(self, subject_id: str) -> bool:
        """Whether the newest verdict of the subject pages."""
        at = self._newest.get(subject_id)
        return at is not None and self._changes[at].pages

    def named_subjects(self) -> list[str]:
        """Subjects that were ever confirmed."""
        return [name for name, state in self._subjects.items() if state.confirmed_at_ns]

    def latest(self) -> list[Verdict]:
        """The newest verdict of every subject."""
        return [self._changes[at] for at in self._newest.values()]

    def costly(self) -> list[Verdict]:
        """The verdict on each slow subject that its newest evaluation found slow."""
        return list(self._costs.values())

    @property
    def changes(self) -> tuple[Verdict, ...]:
        """In order; the last of each subject has its newest numbers."""
        return tuple(self._changes)

    @property
    def notifications(self) -> tuple[Notification, ...]:
        """The newest ``max_changes`` notifications, in order."""
        return self._notifications.notifications

    def drain_late_notifications(self) -> list[Verdict]:
        """Subjects that have begun to page since the last call without a change of state, because
        the slowdown has grown. They are not in ``changes``."""
        new = list(self._late_notifications)
        self._late_notifications.clear()
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
        work: Work | None = None,
    ) -> Verdict | None:
        """Record an evaluation of a subject; returns the verdict if its state has changed.

        Args:
            draft: without state and sentence; the newest verdict of a subject that is not flagged.
            flagged, sure, clear, confirmable: as for :meth:`SubjectState.observe`.
            floor: the smallest excess that counts; the subject is clear at half of it.
            work: of a rank or host now; it has changed if this is another than was reported.
        """
        if not flagged and self.state_of(draft.subject_id).state in WELL:
            return None
        subject = self._subjects.setdefault(draft.subject_id, SubjectState())
        is_new = flagged and subject.state in WELL
        if is_new:
            subject.confirmed_step = None
            subject.floor, subject.confidence = floor, 0.0
        elif flagged and subject.since_step is None:
            subject.since_step, subject.since_ns = draft.since_step, draft.since_ns
        changed = subject.observe(
            flagged=flagged,
            sure=sure,
            clear=clear,
            confirmable=confirmable and draft.confidence >= MIN_CONFIDENCE,
            steps=now.steps,
            at_ns=now.at_ns,
        )
        is_called = changed and subject.state in CALLED_SLOW
        if is_called:
            subject.confirmed_step = now.step
        if is_new or (flagged and is_called):  # more is known of the onset by now
            subject.since_step, subject.since_ns = draft.since_step, draft.since_ns
        if flagged:
            subject.confidence = max(subject.confidence, draft.confidence)
        if flagged and work is not None and subject.state == "confirmed":
            changed |= subject.learn_work(work, now.step, is_new=changed)
        verdict = self._finished(draft, subject, flagged=flagged)
        self._costs.pop(draft.subject_id, None)
        if flagged and verdict.state in CALLED_SLOW:
            self._costs[draft.subject_id] = verdict
        if changed:
            verdict = replace(verdict, at_step=now.step, at_ns=now.at_ns)
            text = sentence(verdict, is_still_slow=self._is_still_slow(verdict))
            verdict = self._append(replace(verdict, sentence=text))
            self._notifications.record(verdict, step=now.step, at_ns=now.at_ns)
            return verdict
        if flagged and draft.subject_id in self._newest:
            at = self._newest[draft.subject_id]
            old = self._changes[at]
            verdict = replace(verdict, at_step=old.at_step, at_ns=old.at_ns)
            self._changes[at] = verdict = replace(verdict, sentence=sentence(verdict))
            if self._notifications.record(verdict, step=now.step, at_ns=now.at_ns):
                self._late_notifications.append(replace(verdict, at_step=now.step, at_ns=now.at_ns))
        elif subject.state == "ok":
            del self._subjects[draft.subject_id]
        return None

    def rename(self, names: Mapping[str, str], now: EvaluationTime) -> list[Verdict]:
        """Go on with subjects under other names, by the earlier ones. Returns changes: the earlier
        name's verdict ends, and stands under the new name, of all that were not over."""
        changes: list[Verdict] = []
        for old, new in names.items():
            if old not in self._subjects:
                continue
            self._subjects[new] = self._subjects.pop(old)
            if old in self._costs:
                self._costs[new] = self._costs.pop(old)
            if self._subjects[new].state in WELL:
                continue
            verdict = self._changes[self._newest[old]]
            self._notifications.rename((verdict.group, old), (verdict.group, new))
            moved = replace(verdict, subject_id=new, at_step=now.step, at_ns=now.at_ns)
            text = f"{name_of(verdict)} shares its GPU with another rank; this goes on as {new}."
            ended = replace(moved, subject_id=old, state="recovered", pages=False, sentence=text)
            changes += [
                self._append(replace(ended, gpu_seconds_lost_per_hour=0.0)),
                self._append(moved),
            ]
        return changes

    def _is_still_slow(self, verdict: Verdict) -> bool:
        """Whether the run has recovered from one cause while another stands."""
        if verdict.scope != "run" or verdict.state not in WELL:
            return False
        others = (each for each in self.open_subjects("run") if each.state in CALLED_SLOW)
        return any(other.subject_id != verdict.subject_id for other in others)

    def _finished(self, draft: Verdict, subject: SubjectState, *, flagged: bool) -> Verdict:
        active = subject.state in CALLED_SLOW
        if active and subject.change:
            draft = replace(draft, detail=", ".join(filter(None, (subject.change, draft.detail))))
        return replace(
            draft,
            state=subject.state,
            since_step=subject.since_step,
            since_ns=subject.since_ns,
            confirmed_step=subject.confirmed_step,
            pages=draft.pages and active,
            confidence=subject.confidence if active else min(draft.confidence, 0.5),
            gpu_seconds_lost_per_hour=draft.gpu_seconds_lost_per_hour if flagged or active else 0.0,
        )

    def _append(self, verdict: Verdict) -> Verdict:
        self._newest[verdict.subject_id] = len(self._changes)
        self._changes.append(verdict)
        if len(self._changes) > self._max:
            self._drop_oldest()
        return verdict

    def _drop_oldest(self) -> None:
        """Drop the older half, except the newest verdict of subjects in trouble."""
        half = self._max_changes // 2
        end = len(self._changes) - half
        kept = [
            verdict
            for at, verdict in enumerate(self._changes[:end])
            if self._newest[verdict.subject_id] == at and verdict.state not in WELL
        ]
        self._changes = [*kept, *self._changes[end:]]
        self._newest = {v.subject_id: at for at, v in enumerate(self._changes)}
        # Where nearly all are in trouble little can go: not to be tried at every change.
        self._max = max(self._max_changes, len(self._changes) + half)

    # --- over restarts -------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "standings": {name: asdict(value) for name, value in self._subjects.items()},
            "changes": [asdict(verdict) for verdict in self._changes],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Unknown fields of a newer version are ignored."""
        subjects = read_as(dict[str, SubjectState], state.get("standings", {}))
        for name, subject in subjects.items():
            subject.flagged_at = []  # counted from the start of a process
            self._subjects[name] = subject
        for each in read_as(list[Verdict], state.get("changes", [])):
            verdict = self._append(each)
            self._notifications.record(verdict, step=verdict.at_step, at_ns=verdict.at_ns)


APART_STEPS = 10
"""Evaluations confirm each other if so far apart, or up to twice as far."""
HOLD = 3
"""Evaluations in a row without a finding that end a suspicion or a confirmed fault."""
FLAPS = 3
FLAP_WITHIN_NS = 3_600 * 10**9
"""So many confirmations within an hour are one flapping subject, not many alarms."""


MIN_CHANGE, CHANGE_PART = 0.10, 0.5
"""A slow rank has got worse or eased if its excess (a logarithm) moved by this, and by half of what
was reported."""
SETTLED = 0.25
"""So far apart, as a part of the change, the newest steps and the newest 20 may be."""


@dataclass(frozen=True, slots=True)
class Work:
    """Logarithms of the seconds per step of own work, of a subject and of its peers, and how far
    its newest steps are from that."""

    own: float
    peers: float
    unsettled: float

    @property
    def excess(self) -> float:
        return self.own - self.peers


@dataclass(slots=True)
class SubjectState:
    """State of one subject; since when, confirmed when, the floor when flagged, and the highest
    confidence of this episode.

    Attributes:
        reported_own, reported_peers: :class:`Work` as it was reported last; NaN if unknown.
        change: text of the last change while it was slow.
    """

    state: State = "ok"
    since_step: int | None = None
    since_ns: int = 0
    confirmed_step: int | None = None
    floor: float = 0.0
    confidence: float = 0.0
    flagged_at: list[int] = field(default_factory=list)
    confirmed_at_ns: list[int] = field(default_factory=list)
    quiet: int = 0
    reported_own: float = math.nan
    reported_peers: float = math.nan
    change: str = ""

    def learn_work(self, work: Work, step: int | None, *, is_new: bool) -> bool:
        """Whether it has got worse or eased since it was reported; its own time must have moved."""
        if is_new:
            self.reported_own, self.reported_peers, self.change = math.nan, math.nan, ""
        if math.isnan(self.reported_own):
            if work.unsettled <= SETTLED * max(MIN_CHANGE, abs(work.excess)):
                self.reported_own, self.reported_peers = work.own, work.peers
            return False
        reported = self.reported_own - self.reported_peers
        moved = work.excess - reported
        minimum = max(MIN_CHANGE, CHANGE_PART * abs(reported) if moved < 0.0 else MIN_CHANGE)
        is_own = (work.own - self.reported_own) / moved >= 0.5 if moved else False
        is_slow = work.excess >= max(self.floor, MIN_CHANGE)
        if abs(moved) < minimum or not (is_own and is_slow):
            return False
        if work.unsettled > SETTLED * abs(moved):
            return False
        word = "worse" if moved > 0.0 else "eased"
        since = "" if step is None else f" since about step {step}"
        self.change = f"{word}{since}, {math.exp(reported):.2f}x before"
        self.reported_own, self.reported_peers = work.own, work.peers
        return True

    def only_peers_moved(self, work: Work | None) -> bool:
        """Whether it is as fast as its peers because these became slower, and it did not change."""
        if work is None or math.isnan(self.reported_own):
            return False
        excess = self.reported_own - self.reported_peers
        came_back = self.reported_own - work.own >= 0.5 * excess
        return not came_back and work.peers - self.reported_peers >= 0.5 * excess

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
        """Apply an evaluation; True if the state has changed.

        Args:
            flagged: beyond its peers now. sure: confirmed at once.
            clear: as fast as its peers again. Neither flagged nor clear: unchanged.
            steps: observed so far, a count.
            at_ns: sender's time of the newest step.
            confirmable: the evidence allows more than a suspicion.
        """
        before = self.state
        if flagged or sure:
            self.quiet = 0
            self._flag(steps, at_ns, sure=sure, confirmable=confirmable)
        else:
            # A suspicion ends without findings; what was confirmed must be clear.
            is_quiet = self.state in ("suspect", "recovered") or clear
            self.quiet = self.quiet + 1 if is_quiet else 0
            if self.quiet >= HOLD:
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

    def _end(self, at_ns: int) -> None:
        last_ns = self.confirmed_at_ns[-1] if self.confirmed_at_ns else 0
        if self.state == "suspect":
            self.state = "recovered" if self.confirmed_at_ns else "ok"
            return
        is_calm = self.state == "flapping" and at_ns - last_ns >= FLAP_WITHIN_NS
        if self.state == "confirmed" or is_calm:
            self.state = "recovered"
