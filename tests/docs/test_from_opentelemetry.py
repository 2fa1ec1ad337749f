"""What the page for users of OpenTelemetry names exists, and its settings are accepted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler import semconv
from otel_straggler.cli.collector import load_settings

from .pages import PAGES, ROOT, fences

PAGE = (ROOT / "docs" / "recipes" / "from-opentelemetry.md").read_text(encoding="utf-8")


def test_every_figure_of_the_page_is_one_that_the_benchmark_prints() -> None:
    """By its name; what is no ratio is said to be of one machine."""
    benchmark = (ROOT / "benchmarks" / "propagation_cost.py").read_text(encoding="utf-8")
    _, _, part = PAGE.partition("benchmarks.propagation_cost`")
    names = re.findall(r"^\| `(\w+)` \| [\d.,]+ \|", part, re.MULTILINE)
    assert len(names) == 8
    assert [name for name in names if f'"{name}":' not in benchmark] == []


def test_every_required_attribute_is_a_known_name() -> None:
    """The attributes of the table are names of this package or of the conventions."""
    _, _, part = PAGE.partition("### Span requirements")
    table = part.partition("\n- ")[0]
    known = {str(v) for v in vars(semconv).values() if isinstance(v, semconv.Attribute)}
    named = set(re.findall(r"`([a-z]+(?:\.[a-z_]+)+)`", table))
    assert len(named) >= 8
    assert named <= known


OF_OTHERS = {"supervisor.md"}
"""Pages whose settings are not a collector's, and have a test of their own."""
YAML = [
    pytest.param(text, id=page.name)
    for page in PAGES
    for text in fences(page, "yaml")
    if page.name not in OF_OTHERS
]


@pytest.mark.parametrize("text", YAML)
def test_settings_in_yaml_are_accepted(text: str, tmp_path: Path) -> None:
    """Ours by our collector; a stock Collector's pipelines name only what is declared."""
    document: dict[str, Any] = yaml.safe_load(text)
    if "service" not in document:
        file = tmp_path / "collector.yaml"
        file.write_text(text)
        load_settings(file, {})
        return
    for pipeline in document["service"]["pipelines"].values():
        for stage in ("receivers", "exporters"):
            assert set(pipeline[stage]) <= set(document[stage])
