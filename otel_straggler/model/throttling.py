"""A GPU that was held back, as a sentence for a verdict's evidence."""

from __future__ import annotations

from collections.abc import Mapping

WORTH_SAYING = 0.05
"""Part of the window; less is no explanation."""
_WORDS = {
    "power": "its power limit",
    "thermal": "its temperature",
    "sync_boost": "a GPU that it keeps in step with (sync boost)",
    "board": "the limits of its board",
    "reliability": "its voltage limit (reliability)",
}


def throttle_sentence(window_ns: int, throttled_ns: Mapping[str, int], gpu: str = "") -> str:
    """What held the GPU back in a window; empty if that is 5 % of it or less.

    Args:
        window_ns: its length.
        throttled_ns: of that, by reason; reasons may overlap. Zero and unknown ones may be there.
        gpu: its name for people; "" says "The GPU".

    >>> throttle_sentence(10_000_000_000, {"thermal": 3_000_000_000, "power": 100})
    'The GPU was throttled for 30 % of the window, by its temperature.'
    """
    if window_ns <= 0:
        return ""
    parts = {reason: min(1.0, spent / window_ns) for reason, spent in throttled_ns.items()}
    telling = {r: p for r, p in sorted(parts.items(), key=lambda x: -x[1]) if p > WORTH_SAYING}
    if not telling:
        return ""
    whole = max(telling.values())
    causes = [_WORDS.get(reason, reason) for reason in telling]
    listed = " and ".join([", ".join(causes[:-1]), causes[-1]] if causes[1:] else causes)
    return f"{gpu or 'The GPU'} was throttled for {whole:.0%} of the window, by {listed}.".replace(
        "%", " %", 1
    )
