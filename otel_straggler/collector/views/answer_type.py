"""The shape of an answer: every field is always there, null where it says nothing."""

from __future__ import annotations

import shlex
from typing import Any, Final, Literal, TypeAlias

from otel_straggler.collector.views.numbers import number
from otel_straggler.collector.views.world_view import WorldView

Json: TypeAlias = dict[str, Any]
Tone = Literal["good", "watch", "bad", "unknown", "ended"]
AnswerKind = Literal[
    "straggler", "hang", "imbalance", "uniform", "healthy", "waiting", "ended", "no_data"
]
TONES: Final[tuple[Tone, ...]] = ("bad", "watch", "unknown", "good", "ended")
"""In the order in which people want to see runs."""


def answer(view: WorldView, tone: Tone, kind: AnswerKind, headline: str, **more: Any) -> Json:
    """An answer with what is known; ``more`` fills other fields."""
    reported: Json = {
        "tone": tone,
        "kind": kind,
        "headline": headline,
        "sentence": headline + ".",
        "scope": None,
        "rank": None,
        "node": None,
        "section": None,
        "since_step": None,
        "since_s": None,
        "cause": None,
        "cause_text": None,
        "cost": {
            "gpu_seconds_lost_per_hour": None,
            "gpu_seconds_lost": lost_so_far(view),
        },
        "peers": None,
        "evidence": None,
        "confidence": None,
        "is_localised": None,
        "advice": [],
        "commands": [],
    }
    unknown = more.keys() - reported.keys()
    assert not unknown, unknown
    return {**reported, **more}


def cost(view: WorldView, per_hour: float | None) -> Json:
    """Seconds of all ranks that are lost, per hour now and since the start."""
    return {
        "gpu_seconds_lost_per_hour": number(per_hour),
        "gpu_seconds_lost": lost_so_far(view),
    }


def lost_so_far(view: WorldView) -> float | None:
    return None if view.world is None else number(view.world.gpu_seconds_lost)


def command(*text: str, view: WorldView) -> str:
    """A line for a shell, about this run."""
    return shlex.join(["otel-straggler", *text, "--run", view.run_id])


def as_sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def percent(part: float) -> str:
    """
    >>> percent(0.0173), percent(0.25)
    ('1.7 %', '25 %')
    """
    value = 100.0 * part
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def duration(seconds: float) -> str:
    """Two units at most, as the page shows it.

    >>> duration(0.4), duration(42), duration(88), duration(7200), duration(100_000)
    ('less than 1 s', '42 s', '1 min 28 s', '2 h', '1 d 4 h')
    """
    if seconds < 1.0:
        return "less than 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two_units(whole, 60, "min", "s")
    minutes = round(whole / 60)
    if minutes < 1440:
        return _two_units(minutes, 60, "h", "min")
    return _two_units(round(whole / 3600), 24, "d", "h")


def _two_units(value: int, size: int, large: str, small: str) -> str:
    whole, rest = divmod(value, size)
    return f"{whole:,} {large}" + (f" {rest} {small}" if rest else "")
