"""Pages to draw: those that the package carries, or any JSON in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_straggler.dashboards.exported import shipped
from otel_straggler.errors import ConfigError, InputError, describe


@dataclass(frozen=True, slots=True)
class Page:
    """A page as Grafana's classic JSON has it; ``name`` is that of its file without the ending."""

    name: str
    told: Mapping[str, Any]

    @property
    def uid(self) -> str:
        return str(self.told.get("uid") or self.name)

    @property
    def title(self) -> str:
        return str(self.told.get("title") or self.name)

    @property
    def variables(self) -> Sequence[Mapping[str, Any]]:
        return (self.told.get("templating") or {}).get("list") or ()

    @property
    def annotations(self) -> Sequence[Mapping[str, Any]]:
        return (self.told.get("annotations") or {}).get("list") or ()

    def panels(self) -> list[dict[str, Any]]:
        """In reading order; rows that Grafana shows closed are opened, what is below moves down."""
        made: list[dict[str, Any]] = []
        moved = 0
        for panel in sorted(self.told["panels"], key=_place):
            inner = panel.get("panels") or []
            made.append(_moved(panel, moved))
            made += [_moved(one, moved) for one in sorted(inner, key=_place)]
            if inner:
                top = _place(panel)[0] + 1
                moved += max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in inner) - top
        return made


def _place(panel: Mapping[str, Any]) -> tuple[int, int]:
    held = panel.get("gridPos") or {}
    return int(held.get("y", 0)), int(held.get("x", 0))


def _moved(panel: Mapping[str, Any], down: int) -> dict[str, Any]:
    held = {"x": 0, "y": 0, "w": 24, "h": 8} | dict(panel.get("gridPos") or {})
    if panel["type"] == "row":
        held |= {"x": 0, "w": 24, "h": 1}
    return dict(panel) | {"gridPos": held | {"y": held["y"] + down}}


def read(folder: Path | None, names: Iterable[str] = ()) -> list[Page]:
    """Pages of the folder, or of the package; ``names`` are files or uids, none for all.

    Raises:
        InputError: a file is no page.
        ConfigError: a name is of no page, or there is none.
    """
    pages = [_page(name, text) for name, text in _texts(folder).items()]
    chosen = []
    for wanted in names:
        found = [p for p in pages if wanted in {p.name, p.uid, f"{p.name}.json"}]
        if not found:
            raise ConfigError(
                describe(
                    where="--page",
                    value=wanted,
                    expected=f"one of {', '.join(page.name for page in pages)}",
                    remedy="Pages of your own are read with --dir.",
                )
            )
        chosen += found
    if not pages:
        raise ConfigError(
            describe(
                where="--dir",
                value=str(folder),
                expected="a folder with pages as *.json",
                remedy="Export a page of Grafana as JSON into it.",
            )
        )
    return chosen or pages


def _texts(folder: Path | None) -> dict[str, str]:
    if folder is None:
        return {
            name.removesuffix(".json"): text
            for name, text in shipped().items()
            if name.endswith(".json") and "/" not in name
        }
    try:
        return {file.stem: file.read_text("utf-8") for file in sorted(folder.glob("*.json"))}
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: cannot be read: {error}") from error


def _page(name: str, text: str) -> Page:
    try:
        told = json.loads(text)
    except ValueError as error:
        raise InputError(f"{name}.json: is not JSON: {error}") from error
    if isinstance(told, dict) and isinstance(told.get("dashboard"), dict):
        told = told["dashboard"]  # as Grafana's API wraps it
    if not isinstance(told, dict) or not isinstance(told.get("panels"), list):
        raise InputError(
            describe(
                where=f"{name}.json",
                value=type(told).__name__,
                expected="a page as Grafana's classic JSON, with panels",
                remedy="The newer schema (v2) is not known here: export as classic.",
            )
        )
    return Page(name, told)
