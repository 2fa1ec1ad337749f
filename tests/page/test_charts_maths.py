"""The maths of the charts, run by Node without a browser, beside Python's encoding of the bytes."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np

from otel_straggler.collector.views.numbers import as_bytes

from .charts_fixtures import Story
from .charts_server import STATIC
from .in_node import HERE, check_facts

THEMES = {"light": ":root {", "dark": ':root[data-theme="dark"] {'}


def test_the_maths_of_the_charts_hold(tmp_path: Path) -> None:
    """All facts of charts_*.test.js hold, and there are some."""
    names = [file.name for file in HERE.glob("charts_*.test.js")]
    check_facts(tmp_path, names, _cases(), minimum=30)


def _cases() -> dict[str, Any]:
    """Slowdowns with Python's bytes, a timeline with its bytes, and the colours of both themes."""
    random = np.random.default_rng(3)
    slowdowns = np.concatenate(
        [2.0 ** random.uniform(-3, 3, 3_000), [1.0, 0.25, 4.0, 1e-9, 1e9, 2.0, 0.5]]
    )
    timeline = Story("silent", 8, 6).timeline()
    return {
        "bytes": list(zip(slowdowns.tolist(), as_bytes(slowdowns).tolist(), strict=True)),
        "timeline": timeline,
        "timeline_bytes": list(base64.b64decode(timeline["values"])),
        "palettes": {theme: _palette(start) for theme, start in THEMES.items()},
    }


def _palette(start: str) -> dict[str, Any]:
    """The variables of charts.css in the block that begins so; of `var(...)` what it falls to."""
    css = (STATIC / "charts.css").read_text()
    block = css[css.index(start) :].partition("}")[0]
    result = dict(re.findall(r"--(?:heat|chart)-(\w+): (.*);", block))
    plain = {
        name: re.sub(r"var\(--[\w-]+, (#\w+)\)", r"\1", value) for name, value in result.items()
    }
    return {**plain, "fast": plain["fast"].split(), "slow": plain["slow"].split()}
