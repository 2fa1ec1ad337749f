"""Closed list of causes of verdicts, with all their texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Cause = Literal[
    "slow_gpu",
    "slow_host",
    "late_arrival",
    "link",
    "stage_imbalance",
    "sequence_imbalance",
    "expert_imbalance",
    "uneven_work",
    "checkpoint",
    "uniform_slowdown",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseInfo:
    """Texts of a cause.

    Attributes:
        name: on the page, in tables and alerts; reason: at the end of a sentence.
        action: what to do, if only the cause is known.
        headline: of a run that has it, now and once the run is over; None: no run has it.
        is_imbalance: the run is compared with one of equal work, not with its past.
        moves: another rank is slow from step to step.
        is_in_own_work: the time is lost in sections of own work.
        name_on_gpu, action_on_gpu: if different for a subject known to compute on a GPU.
    """

    name: str
    reason: str
    action: str
    headline: tuple[str, str] | None = None
    is_imbalance: bool = False
    moves: bool = False
    is_in_own_work: bool = True
    name_on_gpu: str = ""
    action_on_gpu: str = ""


CAUSES: Final[dict[Cause, CauseInfo]] = {
    "slow_gpu": CauseInfo(
        name="slow GPU or host",
        reason="slow GPU or host",
        action="compare load and clocks of its CPU with a peer's, and, if it has a GPU, that one's "
        "clocks, temperature and XID errors; cordon the host if they differ",
        name_on_gpu="slow GPU",
        action_on_gpu="compare its clocks, temperature and XID errors with a peer's; cordon the "
        "host if they differ",
    ),
    "slow_host": CauseInfo(
        name="slow host or data loading",
        reason="slow host or data loading",
        action="look at its data loading, disks and CPU; cordon the host if all its sections are "
        "slow",
    ),
    "late_arrival": CauseInfo(
        name="late arrival",
        reason="late arrival, the time lies in no measured section",
        action="put sections around the rest of its step; look for garbage collection and logging",
        is_in_own_work=False,
    ),
    "link": CauseInfo(
        name="link",
        reason="a slow link",
        action="look at the error counters of the links; cordon the host that has errors",
        headline=("All ranks wait longer than before", "All ranks waited longer than before"),
        is_in_own_work=False,
    ),
    "stage_imbalance": CauseInfo(
        name="stage imbalance",
        reason="pipeline stages of unequal work",
        action="if it was always so, move layers to the other stages; none of its ranks is slower "
        "than its peers",
        is_imbalance=True,
    ),
    "sequence_imbalance": CauseInfo(
        name="sequence-length imbalance",
        reason="sequences of unequal length",
        action="pack sequences to equal work; no machine is at fault",
        headline=(
            "Sequences of unequal length keep ranks waiting",
            "Sequences of unequal length kept ranks waiting",
        ),
        is_imbalance=True,
        moves=True,
    ),
    "expert_imbalance": CauseInfo(
        name="expert imbalance",
        reason="experts of unequal load",
        action="look at the balance of the router, or at the placement of an expert that always "
        "takes longest; no machine is at fault",
        headline=(
            "Experts of unequal load keep ranks waiting",
            "Experts of unequal load kept ranks waiting",
        ),
        is_imbalance=True,
        moves=True,
    ),
    "uneven_work": CauseInfo(
        name="ranks take turns",
        reason="ranks take turns at being slow",
        action="look at what differs from batch to batch: lengths, experts, loading; no machine is "
        "at fault",
        headline=("Ranks take turns at being slow", "Ranks took turns at being slow"),
        is_imbalance=True,
        moves=True,
    ),
    "checkpoint": CauseInfo(
        name="slow writing of checkpoints",
        reason="slow writing of checkpoints",
        action="compare its path to the checkpoints' storage, its disk and its network with a "
        "peer's, and how much it writes",
        is_in_own_work=False,
    ),
    "uniform_slowdown": CauseInfo(
        name="uniform slowdown",
        reason="all ranks alike",
        action="look at what all ranks share: storage, fabric, power, the last change",
        headline=("All ranks are slower than before", "All ranks were slower than before"),
    ),
    "unknown": CauseInfo(
        name="unknown",
        reason="cause unknown",
        action="record a profile of a few steps there and on a peer",
        headline=(
            "Some of the ranks are slower than before",
            "Some of the ranks were slower than before",
        ),
    ),
}


def cause_text(cause: Cause, *, on_gpu: bool) -> str:
    """Name of a cause; a rank that reported no GPU may have none.

    >>> cause_text("slow_gpu", on_gpu=True), cause_text("slow_gpu", on_gpu=False)
    ('slow GPU', 'slow GPU or host')
    """
    info = CAUSES[cause]
    return info.name_on_gpu if on_gpu and info.name_on_gpu else info.name


def reason_text(cause: Cause, *, on_gpu: bool) -> str:
    info = CAUSES[cause]
    return info.name_on_gpu if on_gpu and info.name_on_gpu else info.reason


def next_action(cause: Cause, *, on_gpu: bool) -> str:
    info = CAUSES[cause]
    return info.action_on_gpu if on_gpu and info.action_on_gpu else info.action
