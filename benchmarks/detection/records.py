"""What is kept of one method on one run: counts, small enough for a file that anyone can check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.detection.episodes import Episode
from benchmarks.detection.levels import by_event, by_host, by_rank
from benchmarks.detection.matching import Matched
from benchmarks.detection.metrics import Events
from otel_straggler.simulate.labels import Label
from otel_straggler.simulate.plan import RunPlan


@dataclass(slots=True, kw_only=True)
class MethodRecord:
    """One method on one run.

    Attributes:
        events, by_rank, by_host: (found, false, missed), counted three ways.
        repeated: right episodes beyond the first of a fault.
        delays: steps from onset to the episode, of faults that begin within the run.
        delays_born: of those that are there from the first step.
        loss_found, loss: GPU-hours that the found faults, and all, cost the job.
        causes_right, causes_text: of the faults found, if the method names causes.
        structures_right, structures: labels of roles or the run whose cause was named; all.
        structures_false: verdicts on roles or the run that no label explains.
        causes: (true cause, cause said or "missed") -> count, of all labels.
        top1, top3, ranked: faults whose rank is the most suspicious at the end, or of the first
            three; of how many.
        unlocalised: the method said that it cannot localise while a fault was there.
        cpu_s: processor time, all steps.
        state_bytes: memory of what the method keeps at the end.
        right, wrong: strengths of right and false episodes; not written to files.
    """

    events: tuple[int, int, int] = (0, 0, 0)
    by_rank: tuple[int, int, int] = (0, 0, 0)
    by_host: tuple[int, int, int] = (0, 0, 0)
    repeated: int = 0
    delays: list[int] = field(default_factory=list)
    delays_born: list[int] = field(default_factory=list)
    loss_found: float = 0.0
    loss: float = 0.0
    causes_right: int = 0
    causes_text: int = 0
    structures_right: int = 0
    structures: int = 0
    structures_false: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    top1: int = 0
    top3: int = 0
    ranked: int = 0
    unlocalised: bool = False
    cpu_s: float = 0.0
    state_bytes: int = 0
    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """One run and what all methods made of it.

    Attributes:
        case, family, noise, band, kind, ranks: of the case; timing: what its times hold, and
            whether waiting in them is reported.
        seed: of the run within the case.
        steps, hours: length.
        n_faults: labels of ranks or hosts.
        is_localisable: times can name every one of them.
        methods: by name.
        stories: what ``--explain`` prints; not written to files.
    """

    case: str
    family: str
    timing: str
    noise: str
    band: str
    kind: str
    ranks: int
    seed: int
    steps: int
    hours: float
    n_faults: int
    is_localisable: bool
    methods: dict[str, MethodRecord] = field(default_factory=dict)
    stories: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Without strengths and stories; of the methods what is 0 or empty, and causes if none was
        named, is left out."""
        document = asdict(self)
        del document["stories"]
        document["hours"] = round(self.hours, 4)
        for method in document["methods"].values():
            del method["right"], method["wrong"]
            if all(pair.endswith((" > none", " > missed")) for pair in method["causes"]):
                del method["causes"]
            for name in [name for name, value in method.items() if not value]:
                del method[name]
            for name in ("cpu_s", "loss", "loss_found"):
                if name in method:
                    method[name] = round(method[name], 5)
        return document


def record(
    plan: RunPlan,
    labels: Sequence[Label],
    episodes: Sequence[Episode],
    matched: Matched,
    node_of: Mapping[int, str],
) -> MethodRecord:
    """Count what was matched. Ranking, cost and state are for the caller to add."""
    measured = [finding for finding in matched.findings if finding.episode]
    subjects = [e for e in episodes if e.scope in ("rank", "host")]
    loss = [_loss_gpu_h(plan, labels[f.label]) for f in matched.findings]
    result = MethodRecord(
        events=_counts(by_event(matched.findings, matched.false)),
        by_rank=_counts(by_rank(labels, subjects)),
        by_host=_counts(by_host(labels, subjects, node_of)),
        repeated=matched.repeated,
        loss=sum(loss),
        loss_found=sum(x for x, f in zip(loss, matched.findings, strict=True) if f.is_result),
        structures=len(matched.structures),
        structures_right=sum(finding.is_result for finding in matched.structures),
        structures_false=len(matched.false_structures),
        right=[finding.strength for finding in measured],
        wrong=[episode.strength for episode in matched.false],
    )
    for finding in measured:
        is_born = labels[finding.label].onset_step == plan.first_step
        (result.delays_born if is_born else result.delays).append(finding.delay_steps or 0)
    _count_causes(result, labels, matched)
    return result


def _counts(events: Events) -> tuple[int, int, int]:
    return events.detected, events.false, events.missed


def _count_causes(result: MethodRecord, labels: Sequence[Label], matched: Matched) -> None:
    for finding in (*matched.findings, *matched.structures):
        truth = labels[finding.label].cause
        text = (finding.episode.cause or "none") if finding.episode else "missed"
        pair = f"{truth} > {text}"
        result.causes[pair] = result.causes.get(pair, 0) + 1
    text_causes = [
        (finding.episode.cause, labels[finding.label].cause)
        for finding in matched.findings
        if finding.episode and finding.episode.cause
    ]
    result.causes_text = len(text_causes)
    result.causes_right = sum(text == truth for text, truth in text_causes)


def _loss_gpu_h(plan: RunPlan, label: Label) -> float:
    """What the whole job waits for this label, at most."""
    end = plan.first_step + plan.steps if label.end_step is None else label.end_step
    longer_s = (label.step_slowdown - 1) * plan.step_s * (end - label.onset_step)
    return max(0.0, longer_s) * plan.layout.ranks / 3600
