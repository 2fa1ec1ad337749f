"""Ground truth of a generated run: slow ranks, cause, onset, and whether times can show it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from otel_straggler.model.causes import Cause
from otel_straggler.model.observation import Bools
from otel_straggler.model.verdict import Scope
from otel_straggler.simulate.faults import GPU_KINDS, HANG_KINDS, Fault
from otel_straggler.simulate.plan import BACKWARD, DATA, EXPERTS, FORWARD, SYNC, RunPlan, Timing
from otel_straggler.simulate.timeline import (
    FOREVER,
    ActiveFault,
    Attempt,
    Timeline,
    attempt_at,
    find_slots,
)
from otel_straggler.simulate.work import COMPUTE, STALL_PART, affected, sections_of

_CAUSES: Final[dict[str, Cause]] = {
    **dict.fromkeys(GPU_KINDS, "slow_gpu"),
    "data": "slow_host",
    "data_stall": "slow_host",
    "late": "late_arrival",
    "link": "link",
    "uniform": "uniform_slowdown",
    **dict.fromkeys(HANG_KINDS, "unknown"),
}
_SECTIONS: Final = {
    "forward": FORWARD.name, "backward": BACKWARD.name, "data": DATA.name,
    "data_stall": DATA.name, "link": SYNC.name,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Label:
    """One fault or imbalance of a run.

    Attributes:
        kind: of the fault, or the name of the plan's imbalance (``stage_factor``, ...).
        scope: scope of a correct verdict.
        ranks: by their numbers at the onset; of a link all ranks that share its collective.
        ranks_by_attempt: the same, by the numbers of each attempt.
        nodes: of these ranks at the onset.
        section: empty for all compute sections, or none.
        onset_step, end_step: first step with it, first step without; None: to the end.
        slowdown: time / usual time in its sections at its worst; NaN for hangs and where it varies.
        step_slowdown: local work of the rank per step / usual, the mean over time; the maximum
            loss.
        is_localisable: the reported times can name the culprit; not if asynchronous launches or
            collectives inside the sections hide it and no kernels are timed.
    """

    kind: str
    scope: Scope
    ranks: frozenset[int]
    ranks_by_attempt: tuple[frozenset[int], ...]
    nodes: frozenset[str]
    section: str = ""
    cause: Cause
    onset_step: int
    end_step: int | None = None
    slowdown: float = float("nan")
    step_slowdown: float = float("nan")
    is_localisable: bool = True

    def as_json(self) -> dict[str, Any]:
        """Sets as sorted lists, NaN as None."""
        document = asdict(self)
        document["ranks_by_attempt"] = [sorted(ranks) for ranks in self.ranks_by_attempt]
        for name in ("ranks", "nodes"):
            document[name] = sorted(getattr(self, name))
        for name in ("slowdown", "step_slowdown"):
            document[name] = None if math.isnan(document[name]) else document[name]
        return document


def build_labels(plan: RunPlan, timeline: Timeline) -> tuple[Label, ...]:
    """Faults in the order of the plan, then imbalances."""
    faults = {id(active.fault): active for active in timeline.faults}
    labels = [
        _fault(plan, timeline, faults[id(fault)])
        if fault.kind not in HANG_KINDS
        else _hang(plan, timeline, fault)
        for fault in plan.faults
    ]
    return (*labels, *_imbalances(plan, timeline))


def hung_ranks(plan: RunPlan, fault: Fault, attempt: Attempt) -> Bools:
    """(ranks,) whether each hangs."""
    active = ActiveFault(
        fault=fault, first_made=0, end_made=FOREVER, slots=find_slots(plan, fault, attempt)
    )
    return active.ranks(plan, attempt)


def node_name(plan: RunPlan, slot: int) -> str:
    return f"node-{slot // plan.ranks_per_node}"


def _fault(plan: RunPlan, timeline: Timeline, active: ActiveFault) -> Label:
    fault = active.fault
    attempts = timeline.attempts
    at_onset = attempt_at(attempts, plan, fault.onset_step)
    who = affected(plan, active, at_onset)
    last = attempts[-1].first_made + attempts[-1].steps
    ends = active.end_made < last
    slowdown, step_slowdown = _sizes(plan, fault)
    return _label(
        plan,
        at_onset,
        who,
        tuple(_numbers(affected(plan, active, attempt)) for attempt in attempts),
        kind=fault.kind,
        scope=_scope(fault, who),
        section=_SECTIONS.get(fault.kind, ""),
        cause=_cause(fault),
        onset_step=fault.onset_step,
        end_step=timeline.step_of(active.end_made) if ends else None,
        slowdown=slowdown,
        step_slowdown=step_slowdown,
        is_localisable=_is_localisable(plan, fault, who),
    )


def _hang(plan: RunPlan, timeline: Timeline, fault: Fault) -> Label:
    attempt = attempt_at(timeline.attempts, plan, fault.onset_step)
    who = hung_ranks(plan, fault, attempt)
    nobody: frozenset[int] = frozenset()
    return _label(
        plan,
        attempt,
        who,
        tuple(_numbers(who) if a is attempt else nobody for a in timeline.attempts),
        kind=fault.kind,
        scope=_scope(fault, who),
        cause="unknown",
        onset_step=fault.onset_step,
        end_step=None if attempt is timeline.attempts[-1] else plan.restart_at_step,
        is_localisable=fault.kind != "hang_joined",
    )


def _imbalances(plan: RunPlan, timeline: Timeline) -> Iterator[Label]:
    everybody = np.ones(plan.layout.ranks, bool)
    last_stage = plan.layout.stage == plan.layout.pp - 1
    factor = plan.stage_factor
    if factor != 1.0:
        who = last_stage if factor > 1.0 else ~last_stage
        worst = max(factor, 1.0 / factor)
        stage = {"kind": "stage_factor", "scope": "role", "cause": "stage_imbalance"}
        yield _lasting(plan, timeline, who, **stage, slowdown=worst)
    if plan.sequence_cv:
        sequence = {"kind": "sequence_cv", "scope": "run", "cause": "sequence_imbalance"}
        yield _lasting(plan, timeline, everybody, **sequence)
    if plan.expert_cv:
        expert = {"kind": "expert_cv", "scope": "run", "cause": "expert_imbalance"}
        yield _lasting(plan, timeline, everybody, **expert, section=EXPERTS.name)


def _lasting(plan: RunPlan, timeline: Timeline, who: Bools, **rest: Any) -> Label:
    return _label(
        plan,
        timeline.attempts[0],
        who,
        (_numbers(who),) * len(timeline.attempts),
        onset_step=plan.first_step,
        **rest,
        is_localisable=_timing_reported(plan) != "asynchronous",
    )


def _label(
    plan: RunPlan, attempt: Attempt, who: Bools, by_attempt: tuple[frozenset[int], ...], **rest: Any
) -> Label:
    indexes = np.unique(attempt.slot[who] // plan.ranks_per_node) * plan.ranks_per_node
    nodes = frozenset(node_name(plan, slot) for slot in indexes.tolist())
    return Label(ranks=_numbers(who), ranks_by_attempt=by_attempt, nodes=nodes, **rest)


def _numbers(who: Bools) -> frozenset[int]:
    return frozenset(np.flatnonzero(who).tolist())


def _scope(fault: Fault, who: Bools) -> Scope:
    if fault.kind == "link":
        return "run" if who.all() else "role"
    if fault.host is not None:
        return "host"
    if fault.stage is not None:
        return "role"
    return "rank" if fault.ranks or fault.rail is not None else "run"


def _cause(fault: Fault) -> Cause:
    if fault.kind in GPU_KINDS:
        if fault.host is not None:
            return "slow_host"
        if fault.stage is not None:
            return "stage_imbalance"
        if _scope(fault, np.ones(1, bool)) == "run":
            return "uniform_slowdown"
    return _CAUSES[fault.kind]


def _sizes(plan: RunPlan, fault: Fault) -> tuple[float, float]:
    """Slowdown in its sections, and of the local work of a whole step."""
    local = (DATA, *(s for s in COMPUTE if s in plan.sections))
    step_s = plan.outside_s + sum(plan.usual_s(section) for section in local)
    if fault.kind in ("data", "data_stall"):
        part = STALL_PART if fault.kind == "data_stall" else 1.0
        return 1.0 + fault.size / plan.usual_s(DATA), 1.0 + part * fault.size / step_s
    if fault.kind == "late":
        return 1.0 + fault.size / step_s, 1.0 + fault.size / step_s
    longer_s = sum(plan.usual_s(section) for section in sections_of(plan, fault))
    return fault.size, 1.0 + (fault.size - 1.0) * longer_s / step_s


def _is_localisable(plan: RunPlan, fault: Fault, who: Bools) -> bool:
    timing = _timing_reported(plan)
    if timing == "local" or who.all():
        return True
    if fault.kind == "link":
        return False
    if fault.kind not in GPU_KINDS:
        return True  # the host itself is slow, or nobody waits less than the culprit
    if timing == "asynchronous" or fault.kind == "backward":
        return False
    groups = plan.layout.inner_group
    return bool(np.isin(groups[~who], groups[who]).sum() == 0)


def _timing_reported(plan: RunPlan) -> Timing:
    """Kernels distinguish work from waiting, and so do collectives in which the host waits; events
    hold both, and are what most steps have where kernels are timed in a few."""
    tells = plan.report_collectives and plan.timing != "asynchronous"
    if tells or (plan.gpu_timing == "cupti" and plan.gpu_sample_every == 1):
        return "local"
    is_synchronised = plan.gpu_timing != "off" and plan.timing == "asynchronous"
    return "synchronised" if is_synchronised else plan.timing
