"""What was said of a run beside what its ranks saw."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.real_runs.planning import SECTIONS, Plan
from otel_straggler.model.verdict import CALLED_SLOW

Json = dict[str, Any]
WARM_UP_STEPS: Final = 40
JUDGING: Final = frozenset({"good", "watch", "bad"})
"""Tones of an answer that is no waiting for data, and not about what is over."""
_NUMBERS: Final = re.compile(r"[\d.,:%]+")


@dataclass(slots=True, kw_only=True)
class Watch:
    """What the page said from second to second.

    Attributes:
        headlines: each that differs from the one before in more than its numbers.
        judged: those of them that judge the run while it trains.
        newest: the last body of ``/v1/run`` while the run trained, and at its end.
        losses: parts of the time that the run was said to lose, each time that it was read while
            somebody stood there as slow.
    """

    headlines: list[str] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    newest: Json = field(default_factory=dict)
    ended: Json = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    def read(self, body: Json) -> None:
        """Take one answer."""
        answer, state = body["answer"], body["run"]["state"]
        if state in ("starting", "training"):
            self.newest = body
            is_slow = any(v["state"] in CALLED_SLOW for v in body.get("verdicts", ()))
            if is_slow and body["run"].get("waste") is not None:
                self.losses.append(body["run"]["waste"])
        else:
            self.ended = body
        _add(self.headlines, answer["headline"])
        if answer["tone"] in JUDGING:
            _add(self.judged, answer["headline"])


def _add(headlines: list[str], headline: str) -> None:
    if not headlines or _NUMBERS.sub("#", headline) != _NUMBERS.sub("#", headlines[-1]):
        headlines.append(headline)


def grade(
    plan: Plan, watch: Watch, begun_s: Sequence[Sequence[float]], pages: Sequence[Json]
) -> Json:
    """One run.

    Args:
        begun_s: of each rank, when its steps began, and when the last one ended.
        pages: alerts that called somebody: name, rank, text.
    """
    body = watch.ended or watch.newest
    slow = [v for v in body.get("verdicts", ()) if v["state"] in CALLED_SLOW]
    result: Json = {
        "run": plan.run_id,
        "headlines": watch.headlines,
        "changes": max(len(watch.judged) - 1, 0),
        "pages": [dict(page) for page in pages],
        "called_slow": [v["sentence"] for v in slow],
    }
    if plan.fault is None:
        return result | {"false_pages": len(pages), "drift": round(drift(begun_s), 4)}
    rank = str(plan.fault.rank)
    mine = [v for v in slow if v["scope"] == "rank" and v["rank"] == plan.fault.rank]
    result |= {
        "fault": plan.as_json()["fault"],
        "false_pages": sum(page["rank"] not in ("", rank) for page in pages),
        "paged": any(page["rank"] == rank for page in pages),
        "found": bool(mine),
        "true_loss": round(true_loss(plan, begun_s), 4),
        "said_loss": statistics.median(watch.losses) if watch.losses else None,
    }
    return result | (_onset(plan, mine[0], begun_s[plan.fault.rank]) if mine else {})


def true_loss(plan: Plan, begun_s: Sequence[Sequence[float]]) -> float:
    """1 - step before / step since the onset, by the medians of rank 0; what a warm-up takes is
    left out."""
    assert plan.fault is not None
    return _lost_since(plan.fault.step, begun_s)


def drift(begun_s: Sequence[Sequence[float]]) -> float:
    """What :func:`true_loss` gives for a healthy run, as if a fault had begun after three eighths
    of its steps: how exact that truth is on this machine."""
    return _lost_since((len(begun_s[0]) - 1) * 3 // 8, begun_s)


def _lost_since(step: int, begun_s: Sequence[Sequence[float]]) -> float:
    steps_s = [b - a for a, b in itertools.pairwise(begun_s[0])]
    before = statistics.median(steps_s[WARM_UP_STEPS:step])
    return 1.0 - before / statistics.median(steps_s[step:])


def _onset(plan: Plan, verdict: Json, begun_s: Sequence[float]) -> Json:
    assert plan.fault is not None
    true_s, start_s = begun_s[plan.fault.step], begun_s[0]
    said_s = verdict["since_s"]
    return {
        "section": verdict["section"],
        "section_right": verdict["section"] in SECTIONS[plan.fault.place],
        "since_step_off": verdict["since_step"] - plan.fault.step,
        "since_off_s": None if said_s is None else round(said_s - true_s, 2),
        "since_off_part": None
        if said_s is None
        else round((said_s - true_s) / (begun_s[-1] - start_s), 4),
    }


def summary(runs: Sequence[Json]) -> Json:
    """Totals of healthy and faulty runs."""
    healthy = [run for run in runs if "fault" not in run]
    faulty = [run for run in runs if "fault" in run]
    found = [run for run in faulty if run["found"]]
    return {
        "healthy": {
            "runs": len(healthy),
            "false_pages": sum(run["false_pages"] for run in healthy),
            "called_slow": sum(bool(run["called_slow"]) for run in healthy),
            "max_changes": max((run["changes"] for run in healthy), default=0),
            "drift": _spread(run["drift"] for run in healthy),
        },
        "faulty": {
            "runs": len(faulty),
            "found": len(found),
            "paged": sum(run["paged"] for run in faulty),
            "false_pages": sum(run["false_pages"] for run in faulty),
            "section_right": sum(run["section_right"] for run in found),
            "since_step_off": _spread(run["since_step_off"] for run in found),
            "since_off_part": _spread(run["since_off_part"] for run in found),
            "loss_off": _spread(
                None if run["said_loss"] is None else run["said_loss"] - run["true_loss"]
                for run in found
            ),
        },
    }


def _spread(values: Iterable[float | None]) -> Json:
    """Median and largest of the sizes; values that are not there are counted."""
    every = list(values)
    sizes = [abs(v) for v in every if v is not None]
    if not sizes:
        return {"missing": len(every)}
    return {
        "median": round(statistics.median(sizes), 4),
        "max": round(max(sizes), 4),
        "missing": len(every) - len(sizes),
    }
