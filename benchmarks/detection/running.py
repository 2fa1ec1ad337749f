"""One run through all methods: every one sees the same tables of 5 steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.detection.cases import Case
from benchmarks.detection.episodes import Episode
from benchmarks.detection.matching import Finding, Matched, match
from benchmarks.detection.memory import held_bytes
from benchmarks.detection.methods import METHODS, OURS, Method
from benchmarks.detection.methods.ours import Ours
from benchmarks.detection.metrics import is_among_top
from benchmarks.detection.records import MethodRecord, RunRecord, record
from otel_straggler.simulate.labels import Label
from otel_straggler.simulate.runs import SimulatedRun, generate

TABLE_STEPS = 5


@dataclass(slots=True)
class _Listening:
    """A method, what it has said and what that cost."""

    method: Method
    episodes: list[Episode] = field(default_factory=list)
    cpu_s: float = 0.0


def run_case(case: Case, seed: int, methods: Sequence[str] = tuple(METHODS)) -> RunRecord:
    """Make the run of a case and seed, and judge what every method says of it."""
    run = generate(case.plan(seed))
    listening = [_Listening(METHODS[name]()) for name in methods]
    last_step, end_ns, start_ns = 0, 0, run.plan.start_ns
    for table in run.tables(TABLE_STEPS):
        for each in listening:
            begin_s = time.process_time()
            each.episodes += each.method.take(table)
            each.cpu_s += time.process_time() - begin_s
        last_step, end_ns = int(table.steps[-1]), int(table.end_ns.max())
    result = _result(case, seed, run, (end_ns - start_ns) / 3.6e12)
    for each in listening:
        _conclude(result, run, each, last_step)
    return result


def _result(case: Case, seed: int, run: SimulatedRun, hours: float) -> RunRecord:
    named = [label for label in run.labels if label.scope in ("rank", "host")]
    return RunRecord(
        case=case.name,
        family=case.family,
        timing=case.measured,
        noise=case.noise,
        band=case.band,
        kind=case.kind,
        ranks=case.ranks,
        seed=seed,
        steps=run.plan.steps,
        hours=hours,
        n_faults=len(named),
        is_localisable=all(label.is_localisable for label in named),
    )


def _conclude(result: RunRecord, run: SimulatedRun, each: _Listening, last_step: int) -> None:
    method = each.method
    if isinstance(method, Ours):
        begin_s = time.process_time()
        each.episodes += method.finish(last_step)
        each.cpu_s += time.process_time() - begin_s
    node_of = {source.rank: source.node for source in run.sources}
    matched = match(run.labels, each.episodes, has_host_scope=method.has_host_scope)
    counted = record(run.plan, run.labels, each.episodes, matched, node_of)
    counted.cpu_s, counted.state_bytes = each.cpu_s, held_bytes(method)
    _rank(counted, run, method)
    if isinstance(method, Ours):
        onset = min((label.onset_step for label in run.labels), default=0)
        counted.unlocalised = any(step >= onset for step in method.unlocalised)
    if method.name == OURS:
        result.stories += _stories(result, run.labels, matched)
    result.methods[method.name] = counted


def _rank(counted: MethodRecord, run: SimulatedRun, method: Method) -> None:
    """Where the faults that last to the end stand among the most suspicious ranks then.

    Of several at once, each may be behind the others.
    """
    strengths = method.strengths
    lasting = [x for x in run.labels if x.scope in ("rank", "host") and x.end_step is None]
    all_ranks = frozenset[int]().union(*(label.ranks for label in lasting))
    position = {source.rank: at for at, source in enumerate(run.sources)}
    for label in lasting:
        own = [position[rank] for rank in label.ranks]
        others = [position[rank] for rank in all_ranks - label.ranks]
        counted.ranked += 1
        if len(strengths) == len(position):
            shown = strengths.copy()
            shown[others] = 0.0
            counted.top1 += is_among_top(shown, own, 1)
            counted.top3 += is_among_top(shown, own, 3)


def _stories(result: RunRecord, labels: Sequence[Label], matched: Matched) -> list[str]:
    """A line for every fault that was missed and every false episode."""
    run = f"{result.case} seed {result.seed}"
    lines = [
        f"MISSED {run}: {_who(f)} {_what(labels[f.label])}"
        for f in (*matched.findings, *matched.structures)
        if not f.is_result
    ]
    lines += [
        f"CAUSE  {run}: {_who(f)} {_what(labels[f.label])}; said {f.episode.cause}"
        f" at step {f.episode.begin_step} in {f.episode.section or 'step'}: {f.episode.sentence}"
        for f in matched.findings
        if f.episode and f.episode.cause and f.episode.cause != labels[f.label].cause
    ]
    truth = "; ".join(_what(label) for label in labels) or "nothing wrong"
    lines += [
        f"FALSE  {run}: {_text(e)}; truth: {truth}"
        for e in (*matched.false, *matched.false_structures)
    ]
    return lines


def _who(finding: Finding) -> str:
    ranks = sorted(finding.ranks)
    return f"{finding.scope} {ranks or ''}".strip()


def _what(label: Label) -> str:
    end = "" if label.end_step is None else f"-{label.end_step}"
    hidden = "" if label.is_localisable else ", cannot be localised"
    return (
        f"{label.kind} x{label.slowdown:.3g} in {label.section or 'compute'} on {label.scope}"
        f" {sorted(label.ranks)[:8]} from step {label.onset_step}{end} ({label.cause}{hidden})"
    )


def _text(episode: Episode) -> str:
    who = sorted(episode.ranks)[:8] if episode.scope == "rank" else episode.node
    end = "" if episode.end_step is None else f"-{episode.end_step}"
    return (
        f"{episode.scope} {who or ''} x{episode.slowdown:.3g} in {episode.section or 'step'}"
        f" at step {episode.begin_step}{end} ({episode.cause}): {episode.sentence}"
    )
