"""Which tier the results allow as the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition of "cupti may be the default".

    Attributes:
        experiment, figure: what is looked at.
        minimum, maximum: it must lie there.
        words: the condition, for people.
        is_needed: without its figure nothing is decided; else the rule is left out.
    """

    experiment: str
    figure: str
    minimum: float | None
    maximum: float | None
    words: str
    is_needed: bool = True


WAYS = ("m1", "m2")


def rules(way: str) -> tuple[Rule, ...]:
    """For our timer by marks (m1) or by launches (m2)."""
    return (
        Rule("E3", f"large {way}", None, 0.5, "E3: large model at most +0.5 %"),
        Rule("E3", f"small {way}", None, 1.0, "E3: small model at most +1 %"),
        Rule("E4", f"attributed {way}", 99.9, None, "E4: 99.9 % of kernels in their section"),
        Rule("E6", f"residue {way}", None, 0.2, "E6: at most 0.2 % slower after it was on"),
        Rule("E7", f"lost {way}", None, 0, "E7: torch.profiler and we both get everything"),
        Rule("E9", f"flaws {way}", None, 0, "E9: 25 million records, flat memory", is_needed=False),
    )


GOVERNED = frozenset({"small m1", "small m2"})
"""What a governor mends at run time: where it costs more, the tier steps down by itself."""


def decide(experiments: Mapping[str, Any], *, has_governor: bool) -> dict[str, Any]:
    """``default``: cupti, "cupti, governed", events, or undecided; and the reasons by way.

    Args:
        experiments: by key, as ``running.py`` makes them.
        has_governor: whether the package steps a costly tier down by itself.
    """
    ways = {way: _decide_way(experiments, way, has_governor) for way in WAYS}
    for answer in ("cupti", "cupti, governed"):
        for way, result in ways.items():
            if result["default"] == answer:
                return {"default": answer, "way": way, "ways": ways}
    is_open = any(result["default"] == "undecided" for result in ways.values())
    return {"default": "undecided" if is_open else "events", "way": None, "ways": ways}


def _decide_way(experiments: Mapping[str, Any], way: str, has_governor: bool) -> dict[str, Any]:
    verdicts = {rule: _evaluate(experiments, rule) for rule in rules(way)}
    broken = [rule for rule, verdict in verdicts.items() if verdict == "broken"]
    is_open = any(rule.is_needed and v == "unknown" for rule, v in verdicts.items())
    if any(rule.figure not in GOVERNED or not has_governor for rule in broken):
        default = "events"
    elif is_open:
        default = "undecided"
    else:
        default = "cupti, governed" if broken else "cupti"
    return {"default": default, "rules": {rule.words: v for rule, v in verdicts.items()}}


def _evaluate(experiments: Mapping[str, Any], rule: Rule) -> str:
    figures = experiments.get(rule.experiment, {}).get("figures", {})
    value = figures.get(rule.figure, {}).get("value")
    if value is None:
        return "unknown"
    is_low = rule.minimum is not None and not value >= rule.minimum
    is_high = rule.maximum is not None and not value <= rule.maximum
    return "broken" if is_low or is_high else "kept"
