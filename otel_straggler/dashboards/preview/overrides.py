"""How each field is shown: what the panel says of all, then what it says of some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from otel_straggler.dashboards.preview.frames import Field, Frame, display_name
from otel_straggler.dashboards.preview.patterns import compiled


def configure(frames: Sequence[Frame], told: Mapping[str, Any]) -> list[str]:
    """Fill in ``config`` of every field; what of ``told`` is not known here is the answer."""
    unknown = []
    defaults = told.get("defaults") or {}
    for frame in frames:
        for one in frame.fields:
            one.config = {
                key: deepcopy(value) for key, value in defaults.items() if _applies(key, one)
            }
    for override in told.get("overrides") or ():
        matcher = override["matcher"]
        if matcher["id"] not in _KNOWN:
            unknown.append(f"override {matcher['id']}")
            continue
        for frame in frames:
            for one in frame.fields:
                if _is_meant(one, frame, frames, matcher["id"], matcher.get("options")):
                    _change(one, override["properties"])
    return unknown


_KNOWN: Final = frozenset({"byName", "byRegexp", "byType", "byFrameRefID", "byNames"})


def _applies(key: str, one: Field) -> bool:
    """Limits and decimals are for numbers alone; a unit is for all, for text too."""
    if key in {"min", "max", "decimals"}:
        return one.kind == "number"
    return key != "mappings" or one.kind != "time"


def _is_meant(one: Field, frame: Frame, frames: Sequence[Frame], kind: str, wanted: Any) -> bool:
    names = {one.name, display_name(one, frames)}
    if kind == "byName":
        return str(wanted) in names
    if kind == "byNames":
        is_named = bool(names & set(wanted.get("names") or ()))
        return is_named is not (wanted.get("mode") == "exclude")
    if kind == "byRegexp":
        return bool(compiled(str(wanted)).search(display_name(one, frames)))
    if kind == "byType":
        return bool(one.kind == wanted)
    return bool(frame.ref == wanted)


def _change(one: Field, properties: Sequence[Mapping[str, Any]]) -> None:
    for changed in properties:
        if not _applies(str(changed["id"]), one):
            continue
        *path, last = str(changed["id"]).split(".")
        held = one.config
        for part in path:
            held = held.setdefault(part, {})
        held[last] = deepcopy(changed.get("value"))
