"""Colours of the frame: text can be read on every ground on which it stands, in both themes."""

from __future__ import annotations

import itertools
import re

import pytest

from otel_straggler.page import asset

MIN_RATIO = 4.5
MIN_SHAPE_RATIO = 3.0
"""Of marks that are no text: WCAG 1.4.11."""
TONES = ("good", "watch", "bad", "unknown", "ended")
GROUNDS = ("ground", "surface", "raised", "sunken")
PAIRS = [
    *itertools.product(("text", "muted", "accent"), GROUNDS),
    *itertools.product(TONES, ("surface", "raised")),
    *((tone, f"{tone}-ground") for tone in TONES),
    *itertools.product(("text", "muted"), [f"{tone}-ground" for tone in TONES]),
    *(("surface", tone) for tone in TONES),  # the mark of the answer
    *(("on-state", f"state-{state}") for state in ("ok", "late", "stuck", "lost", "starting")),
    *(("on-shade", f"shade-{number}") for number in range(8)),
]


def variables(theme: str) -> dict[str, str]:
    """Of the light theme; the dark one changes some of them."""
    result = asset("style.css")
    assert result is not None
    blocks = re.findall(
        r'(:root(?:\[data-theme="dark"\])?) \{(.*?)\}', result.content.decode(), re.DOTALL
    )
    of_theme: dict[str, str] = {}
    for selector, body in blocks:
        if theme == "dark" or "dark" not in selector:
            of_theme |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", body))
    return of_theme


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ratio(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_ratio_of_black_and_white() -> None:
    """The largest there is."""
    assert ratio("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_text_can_be_read(theme: str, ink: str, ground: str) -> None:
    """4.5 to 1 at least."""
    colours = variables(theme)
    result = ratio(colours[ink], colours[ground])
    assert result >= MIN_RATIO, f"{ink} {colours[ink]} on {ground} {colours[ground]}: {result:.2f}"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("shape", ["bar-own", "bar-others", "bar-neutral", "focus", "line-strong"])
def test_shapes_stand_out(theme: str, shape: str) -> None:
    """Bars, the ring of the focus: 3 to 1 on a card. Lines that part are decoration."""
    colours = variables(theme)
    minimum = 1.5 if shape == "line-strong" else MIN_SHAPE_RATIO
    assert ratio(colours[shape], colours["surface"]) >= minimum
