"""The pages that are committed, and what a collector publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.alerts.checking import labels_by_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
PAGES = sorted(FOLDER.glob("*.json"))
VALUES = {"__rate_interval": "5m", "__range": "1h", "__interval": "30s"}
DCGM = (
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
)
"""Gauges of DCGM exporter that stand in its default list of counters."""
Json = Mapping[str, Any]


@pytest.fixture(params=PAGES, ids=lambda path: path.stem)
def page(request: pytest.FixtureRequest) -> Json:
    made: Json = json.loads(request.param.read_text(encoding="utf-8"))
    return made


def panels(page: Json) -> list[Json]:
    return [panel for panel in page["panels"] if panel["type"] != "row"]


def queries(page: Json) -> Iterator[tuple[str, str]]:
    """Every expression with who asks it, as the page has it."""
    for panel in panels(page):
        for target in panel["targets"]:
            yield f"{page['uid']} panel {panel['id']}", target["expr"]
    for annotation in page.get("annotations", {}).get("list", ()):
        yield f"{page['uid']} annotation {annotation['name']}", annotation["expr"]
    for variable in page["templating"]["list"]:
        if asked := re.fullmatch(r"query_result\((.*)\)", variable["query"]):
            yield f"{page['uid']} variable {variable['name']}", asked[1]


def filled(expression: str) -> str:
    """With a value in the place of each variable."""
    text = re.sub(r"\$\{\w+:regex\}", "x", expression)
    return re.sub(r"\$([A-Za-z_]\w*)", lambda result: VALUES.get(result[1], "x"), text)


def published() -> dict[str, frozenset[str]]:
    """Labels by name of what a collector and DCGM exporter serve."""
    return {**labels_by_name(), **dict.fromkeys(DCGM, frozenset({"UUID", "gpu"}))}
