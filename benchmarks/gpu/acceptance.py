"""What the results allow as the default: which tier, and whether kernels are sampled on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition of a default.

    Attributes:
        experiment, figure: what is looked at.
        minimum, maximum: it must lie there.
        text: the condition, for people.
        is_needed: without its figure nothing is decided; else the rule is left out.
        noise: a figure of the same experiment that would be 0 without noise; where it is beyond
            ``maximum``, the rule can be kept and not broken.
    """

    experiment: str
    figure: str
    minimum: float | None
    maximum: float | None
    text: str
    is_needed: bool = True
    noise: str = ""


EVENTS = (
    Rule("E3", "large events", None, 0.5, "E3: CUDA events cost the large model at most 0.5 %"),
    Rule("E14", "events spans with GPU times", 1, None, "E14: sections get their GPU times"),
    Rule(
        "E3", "small events", None, 1.0, "E3: they cost the small model at most 1 %",
        is_needed=False, noise="small off again",
    ),
)  # fmt: skip
"""Of CUDA events, in every step."""

SAMPLING = (
    Rule("E4", "attributed m1", 99.9, None, "E4: 99.9 % of kernels in their section"),
    Rule("E16", "kernels between wrong marks c", None, 0, "E16: kernels lie between their marks"),
    Rule("E3", "large m1", None, 0.5, "E3: in every step, they cost the large model at most 0.5 %"),
    Rule("E17", "small 1 in 50", None, 0.5, "E17: in 1 step of 50, the small model at most 0.5 %"),
    Rule("E16", "idle c", None, 0.2, "E16: the steps between cost at most 0.2 %"),
    Rule(
        "E16", "residue of launches c", None, 0.2,
        "E16: launches cost at most 0.2 % of a step more after it was on",
    ),
    Rule(
        "E16", "residue c", None, 0.2, "E16: steps take at most 0.2 % more after it was on",
        is_needed=False, noise="residue also_never",
    ),
    Rule(
        "E6", "residue m1", None, 0.2, "E6: the same with our timer",
        is_needed=False, noise="residue also_never",
    ),
    Rule("E7", "lost m1", None, 0, "E7: torch.profiler and we both get everything"),
    Rule("E9", "flaws m1", None, 0, "E9: 25 million records, flat memory", is_needed=False),
)  # fmt: skip
"""Of kernel records in one step of many, by marks."""


def decide(experiments: Mapping[str, Any]) -> dict[str, Any]:
    """``auto_tier`` (events, off or undecided), ``kernel_sampling`` (on, off or undecided), the
    ``rules`` of both with what became of each, and ``because``, which names what decided.

    Args:
        experiments: by key, as ``running.py`` makes them.
    """
    events = {rule: _evaluate(experiments, rule) for rule in EVENTS}
    sampling = {rule: _evaluate(experiments, rule) for rule in SAMPLING}
    tier = _outcome(events, "events")
    why = _reasons(experiments, sampling)
    return {
        "auto_tier": tier,
        "kernel_sampling": "off" if tier == "off" else _outcome(sampling, "on"),
        "rules": {
            "events": {rule.text: verdict for rule, verdict in events.items()},
            "sampling": {rule.text: verdict for rule, verdict in sampling.items()},
        },
        "because": {
            "events": _reasons(experiments, events),
            "sampling": ["there is nothing to sample over", *why] if tier == "off" else why,
        },
    }


def _outcome(verdicts: Mapping[Rule, str], kept: str) -> str:
    if "broken" in verdicts.values():
        return "off"
    is_open = any(rule.is_needed and v in ("unknown", "noise") for rule, v in verdicts.items())
    return "undecided" if is_open else kept


def _reasons(experiments: Mapping[str, Any], verdicts: Mapping[Rule, str]) -> list[str]:
    """What is broken, with its figure; else what is not known; else that all is kept."""
    broken = [rule for rule, verdict in verdicts.items() if verdict == "broken"]
    if broken:
        values = {rule: _value(experiments, rule.experiment, rule.figure) for rule in broken}
        return [f"not kept: {rule.text} (measured {value:.3g})" for rule, value in values.items()]
    unknown = [r.text for r, v in verdicts.items() if r.is_needed and v in ("unknown", "noise")]
    return [f"not measured: {text}" for text in unknown] or ["every rule that was measured is kept"]


def _evaluate(experiments: Mapping[str, Any], rule: Rule) -> str:
    value = _value(experiments, rule.experiment, rule.figure)
    if value is None:
        return "unknown"
    is_low = rule.minimum is not None and not value >= rule.minimum
    is_high = rule.maximum is not None and not value <= rule.maximum
    if not is_low and not is_high:
        return "kept"
    noise = _value(experiments, rule.experiment, rule.noise) if rule.noise else None
    is_noise = noise is not None and rule.maximum is not None and abs(noise) > rule.maximum
    return "noise" if is_noise else "broken"


def _value(experiments: Mapping[str, Any], key: str, figure: str) -> Any:
    return experiments.get(key, {}).get("figures", {}).get(figure, {}).get("value")
