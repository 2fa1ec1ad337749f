"""Alert rules, and the input of their predicates: the status of all runs of a collector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final, Literal

from otel_straggler.alerts.messages import Facts, Message, humanize_duration
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.detect.hangs.states import ENDS, HANGS, HangKind, RunState
from otel_straggler.model.alert import Domain, Severity
from otel_straggler.model.verdict import Scope, Verdict

During = Literal["training", "working", "alive", "always"]
"""When an alert about a run may fire: while the run trains; unless it hangs or is over; unless it
is over; whatever became of it."""
OVER: Final[tuple[RunState, ...]] = (*ENDS, "forgotten")
IDLE: Final[tuple[RunState, ...]] = (*OVER, *HANGS)
BARRED: Final[Mapping[During, tuple[RunState, ...]]] = {
    "training": (*IDLE, "starting"),
    "working": IDLE,
    "alive": OVER,
    "always": (),
}
"""States of its run in which an alert neither fires nor goes on firing: the one condition of rules
and collector. In a state that is unknown it may."""


MAX_SINGLE: Final = 5
"""Subjects of one cause that have an alert each; more of them are one alert."""
APART: Final = 0.9
"""A rank is slower than its own past by itself if it has lost a tenth more than most others."""

# --- the input -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A rank that a hang waits for; see ``straggler.rank.culprit``."""

    rank: int
    node: str
    role: str
    why: HangKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """A rank whose node's agent has acted on a timeout; see ``straggler.rank.timed_out``."""

    rank: int
    node: str
    role: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One score of the newest window; ``section`` is empty for the whole rank.

    Attributes:
        best_s, best_at_s: the rank's own best median of the section, and when that was measured, by
            the rank's clock; NaN if unknown.
    """

    rank: int
    node: str
    role: str
    section: str
    value: float
    best_s: float = math.nan
    best_at_s: float = math.nan

    @property
    def best_text(self) -> str:
        """Its own best for people; empty if unknown."""
        if not (math.isfinite(self.best_s) and math.isfinite(self.best_at_s)):
            return ""
        at = datetime.fromtimestamp(self.best_at_s, timezone.utc)
        return f"Its best was {humanize_duration(self.best_s)}, at {at:%Y-%m-%d %H:%M} UTC."


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionSpeed:
    """Individual scores of all ranks in a section.

    Attributes:
        median: of the scores.
        ranks, below: number of the scores, and of those below the threshold of the alert.
    """

    section: str
    median: float
    ranks: int
    below: int

    def is_low(self, threshold: float) -> bool:
        """Whether half of the ranks are below it."""
        return self.median < threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The newest scores of a run: of every rank the lowest in a section that may be listed, lowest
    first; those far above the thresholds of all alerts may be left out.

    Attributes:
        section_individual: only those that are below :data:`APART` times the median of all ranks:
            where all have moved together it is not the rank.
        speeds: of sections that may be listed, against the ranks' own best.
    """

    section_relative: tuple[Score, ...] = ()
    section_individual: tuple[Score, ...] = ()
    gpu_relative: tuple[Score, ...] = ()
    speeds: tuple[SectionSpeed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What an alert counts instead of naming each: more than :data:`MAX_SINGLE` subjects of a run.

    Attributes:
        alert, severity, cause: of the alert; the cause is empty where it is the same for all.
        count: subjects now.
        worst: five of them, for people; one that is named stays named while it is slow.
    """

    alert: str
    severity: Severity
    cause: str
    count: int
    worst: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One group of one run.

    Attributes:
        pages: whether its alerts may notify anybody.
        attempt: the newest.
        state, is_hung, hang_text: of ``straggler.run.state``, ``.hung`` and ``.hang_info``. Without
            heartbeats it is "starting", and "lost" once spans have stopped.
        is_acknowledged: it hangs, and a person has silenced that.
        culprits_text: the ranks that a hang waits for, with their hosts; for people.
        why: the kind of hang, as in ``straggler.run.hang_info``; None if there is none.
        since_s: since when it is in this state; None if unknown.
        culprits: the ranks that a hang waits for, at most 20.
        timed_out: ranks that exceed a timeout of their node's agent, at most 20.
        ranks: ranks by state, and "missing": expected and never seen; empty if no rank sends
            heartbeats.
        last_scored_at_s: of the newest scores; None if there never were any.
        verdicts: the newest of every subject, without silenced ones.
        silenced: of the others, those that are called slow.
        slowdown: of the run; NaN if unknown.
        clashes: ranks claimed by two live sessions, over all groups of the run.
        dropped: records lost by all ranks since this collector first saw them, by reason.
        hourly_goodput: of the last hour; NaN if unknown.
        is_failing: its evaluation fails by a mistake of the collector, and the run goes on.
        slow_for_s: since how many seconds each subject has been called slow, by ``subject_id``; the
            evaluator keeps it.
        low_for_s: since how many seconds a score of a rank is below the threshold of an alert, by
            its name and the rank; the evaluator keeps it.
        degraded: individual scores of ranks that an alert names; of at most five.
        crowds: subjects that are counted instead of named.
        failed_at_s: since when it has failed for good: no launcher restarts it; None if it has not.
        failure_text: who failed first, how, and when.
        unscored: ranks that report and have no score, while others have one.
        unscored_text: which ranks these are; empty if there are none.
        coverage: part of the ranks that is in the newest window; NaN if there is none.
    """

    run_id: str
    job: str = ""
    group: str = ""
    team: str = ""
    attempt: int = 0
    pages: bool = True
    state: RunState = "training"
    since_s: float | None = None
    is_hung: bool = False
    is_acknowledged: bool = False
    why: HangKind | None = None
    hang_text: str = ""
    culprits_text: str = ""
    culprits: tuple[Culprit, ...] = ()
    timed_out: tuple[TimedOut, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    last_scored_at_s: float | None = None
    scores: Scores = field(default_factory=Scores)
    verdicts: tuple[Verdict, ...] = ()
    silenced: tuple[Verdict, ...] = ()
    slowdown: float = float("nan")
    clashes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    hourly_goodput: float = float("nan")
    is_failing: bool = False
    slow_for_s: Mapping[str, float] = field(default_factory=dict)
    low_for_s: Mapping[tuple[str, int], float] = field(default_factory=dict)
    degraded: tuple[Score, ...] = ()
    crowds: tuple[Crowd, ...] = ()
    failed_at_s: float | None = None
    failure_text: str = ""
    unscored: int = 0
    unscored_text: str = ""
    coverage: float = float("nan")

    @property
    def has_known_state(self) -> bool:
        """Whether ``straggler.run.state`` is published."""
        return bool(self.ranks) or self.state != "starting"

    def allows(self, during: During) -> bool:
        return not self.has_known_state or self.state not in BARRED[during]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """All runs at one moment.

    Attributes:
        now_s: the collector's clock.
        collector, cluster: constant labels; cluster may be empty.
        pages: whether this collector's alerts may notify anybody.
        under_maintenance: nodes whose alerts notify nobody now.
        troubles: of the collector now: ``semconv.TROUBLES`` to a sentence.
    """

    now_s: float
    collector: str
    cluster: str = ""
    pages: bool = True
    runs: tuple[RunStatus, ...] = ()
    under_maintenance: frozenset[str] = frozenset()
    troubles: Mapping[str, str] = field(default_factory=dict)


# --- the rule ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instance:
    """An alert's condition holds for one subject at one moment.

    Attributes:
        run: None if it is about the collector.
        labels: further labels of the subject; empty ones are left out.
        value, facts: for the messages.
        held_s: for how long it holds already, under whichever labels.
        details: what only the text says, by name; see ``AlertRule.details``.
    """

    run: RunStatus | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float = 1.0
    facts: Facts = field(default_factory=dict)
    held_s: float = 0.0
    details: Mapping[str, str] = field(default_factory=dict)


Expression = Callable[[AlertSettings], str]
Predicate = Callable[[FleetStatus, AlertSettings], Iterable[Instance]]
Seconds = Callable[[AlertSettings], float]


def at_once(_: AlertSettings) -> float:
    return 0.0


def a_minute(_: AlertSettings) -> float:
    return 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert; rules that share a name differ in severity, or one counts the subjects of the
    other.

    Attributes:
        labels: of its subject, besides cluster and collector: they are what makes it another alert.
        details: further labels of ``expression`` that only the text says, and annotations repeat:
            why it is so may change while it is the same alert.
        expression: PromQL that gives one element for each subject, with these labels and no other.
        predicate: the same from what a collector knows; None: only an outside observer can tell.
        during: see :data:`During`; without a run it is of no account. None fires for a host under
            maintenance, or a rank there.
        for_s: how long it must hold before it fires.
        keep_firing_s: how long it keeps firing after its condition has ended, unless its run may no
            longer have it, or it was muted.
        scope: of the verdicts that it is about, if it is about verdicts: its ``for_s`` counts from
            when one was confirmed, as ``held_s`` has it, and it ends as soon as that is silenced.
        is_lasting: its expression and predicate give only what has held for ``for_s`` already, as
            those of a rule with a ``scope`` do.
        counts: the rule on single subjects whose number, by run and cause, this one is about: while
            it fires the other does not, for these. subjects: what it counts; a label of its alerts.
        summary, description: messages; the summary uses no number. past: the summary once it is
            over.
    """

    name: str
    severity: Severity
    domain: Domain
    labels: tuple[str, ...]
    details: tuple[str, ...] = ()
    expression: Expression
    predicate: Predicate | None
    during: During = "alive"
    for_s: Seconds = at_once
    keep_firing_s: Seconds = at_once
    scope: Scope | None = None
    is_lasting: bool = False
    counts: AlertRule | None = None
    subjects: str = ""
    summary: Message
    past: Message
    description: Message

    @property
    def messages(self) -> dict[str, Message]:
        """All texts, by the name of their annotation."""
        return {
            "summary": self.summary,
            "description": self.description,
            "resolved": self.past,
            **{name: Message(f"{{{name}|none}}") for name in self.details},
        }
