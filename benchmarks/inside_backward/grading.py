"""Whether what a report says about a run is right.

A run with a fault is right if the rank is confirmed slow at its end, in a section that was made
slower, by what was planted there, and nobody and nothing else was confirmed at any time. "By what
was planted" means that own time less that of the peers is within 20 % of the planted seconds. A run
without a fault is right if nothing was ever confirmed.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.inside_backward.faults import Fault
from otel_straggler.model.verdict import CALLED_SLOW

Json = dict[str, Any]
TOLERANCE: Final = 0.2
"""Of the planted seconds."""
RIGHT, NOBODY, WRONG_RANK, OTHERS, SECTION, DOSE = OUTCOMES = (
    "right", "nobody", "wrong_rank", "others", "wrong_section", "wrong_dose",
)  # fmt: skip
"""The first that holds, from the second on: no rank or host confirmed; only others; others as well;
the rank in another section; by another time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What became of a run.

    Attributes:
        outcome: of ``OUTCOMES``.
        steps: from the onset to the first confirmation of the rank; None if there is none.
        part: measured by planted seconds; None if the section was not made slower.
        is_false_alike: nobody is named, nothing is said to be hidden, and the stated detection
            limit is below what was planted.
        texts: of what was confirmed.
    """

    outcome: str
    steps: int | None = None
    part: float | None = None
    is_false_alike: bool = False
    texts: tuple[str, ...] = ()


def grade(run: Json, fault: Fault | None) -> Grade:
    """Compare a run of ``/v1/report`` with what was planted; None: nothing."""
    confirmed = [v for v in run["verdicts"] if v["state"] in CALLED_SLOW]
    texts = tuple(dict.fromkeys(v["sentence"] for v in confirmed))
    if fault is None:
        return Grade(outcome=OTHERS if confirmed else RIGHT, texts=texts)
    mine = [v for v in confirmed if v["scope"] == "rank" and v["rank"] == fault.rank]
    if not mine or _newest(run, mine[0])["state"] not in CALLED_SLOW:
        outcome = WRONG_RANK if len(confirmed) > len(mine) else NOBODY
        return Grade(outcome=outcome, is_false_alike=_is_false_alike(run, fault), texts=texts)
    newest = _newest(run, mine[0])
    planted_s = _planted_s(newest["section"], fault)
    part = (newest["own_s"] - newest["peers_s"]) / planted_s if planted_s else None
    steps = mine[0]["at_step"] - fault.onset
    outcome = OTHERS if len(confirmed) > len(mine) else _of_named(part)
    return Grade(outcome=outcome, steps=steps, part=part, texts=texts)


def _newest(run: Json, verdict: Json) -> Json:
    of_subject = [v for v in run["verdicts"] if v["subject_id"] == verdict["subject_id"]]
    return of_subject[-1]


def _planted_s(section: str | None, fault: Fault) -> float:
    """Of a section; of a whole step, if several were made slower. 0 where nothing was planted."""
    if section is None:
        return sum(fault.added_s.values()) if len(fault.added_s) > 1 else 0.0
    return fault.added_s.get(section, 0.0)


def _of_named(part: float | None) -> str:
    if part is None:
        return SECTION
    return RIGHT if abs(part - 1.0) <= TOLERANCE else DOSE


def _is_false_alike(run: Json, fault: Fault) -> bool:
    limit = run["run"].get("resolvable_slowdown")
    return limit is not None and limit <= 1.0 + fault.dose


def totals(grades: Sequence[Grade]) -> Json:
    """How often each outcome, and the median of steps of those that named the rank."""
    counts = Counter(each.outcome for each in grades)
    steps = [each.steps for each in grades if each.steps is not None]
    return {
        "runs": len(grades),
        **{outcome: counts[outcome] for outcome in OUTCOMES},
        "false_alike": sum(each.is_false_alike for each in grades),
        "median_steps": statistics.median(steps) if steps else None,
    }


def as_json(each: Grade) -> Json:
    """Without what is empty."""
    return {name: value for name, value in asdict(each).items() if value not in (None, (), False)}
