"""What the alerts look at: the state of all runs that a collector knows, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_straggler.model.verdict import Verdict
from otel_straggler.score.hangs.states import HangKind, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A rank that a hang waits for; see ``straggler.rank.culprit``."""

    rank: int
    node: str
    role: str
    why: HangKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One score of the newest window; ``section`` is empty for the whole rank."""

    rank: int
    node: str
    role: str
    section: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The newest scores of a run, of whole ranks and of sections that may be listed.

    Each is sorted, the lowest first, and may be cut off after the lowest 20 and all below 1.
    """

    section_relative: tuple[Score, ...] = ()
    section_individual: tuple[Score, ...] = ()
    gpu_relative: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """One group of one run.

    Attributes:
        run_id, job, group, team: whose alerts these are.
        pages: whether they may call somebody.
        attempt: the newest.
        state, is_hung, told: of ``straggler.run.state``, ``.hung`` and ``.hang_info``.
        why: the kind of hang, as ``straggler.run.hang_info`` has it; None while nobody waits.
        since_s: since when it is in this state; None if not known.
        culprits: whom a hang waits for, at most 20.
        ranks: ranks by state, and "missing": expected and never heard of; empty if no rank sends
            signs of life, so that its state is not judged and stays "starting".
        last_scored_at_s: of the newest scores; None if there never were any.
        scores: the newest.
        verdicts: the newest of every subject, none that people have silenced.
        data_sections: sections of the newest window that are of the kind "data".
        slowdown: of the run; NaN if not known.
        clashes: ranks claimed by two live sessions, over all groups of the run.
        dropped: records lost by all ranks since they were first heard of here, by reason.
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
    why: HangKind | None = None
    told: str = ""
    culprits: tuple[Culprit, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    last_scored_at_s: float | None = None
    scores: Scores = field(default_factory=Scores)
    verdicts: tuple[Verdict, ...] = ()
    data_sections: frozenset[str] = frozenset()
    slowdown: float = float("nan")
    clashes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Everything, at one moment.

    Attributes:
        now_s: the collector's clock.
        collector, cluster: constant labels; cluster may be empty.
        pages: whether this collector's alerts may call somebody.
        runs: see above.
        under_maintenance: nodes for which nobody is called now.
    """

    now_s: float
    collector: str
    cluster: str = ""
    pages: bool = True
    runs: tuple[WatchedRun, ...] = ()
    under_maintenance: frozenset[str] = frozenset()
