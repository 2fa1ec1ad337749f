"""The files that a wheel carries: pages, provisioning for Grafana, an example for compose."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it is elsewhere before Python 3.11
    from importlib.abc import Traversable


def shipped() -> dict[str, str]:
    """Texts by their path below the folder that Grafana reads, sorted."""
    return dict(sorted(_below(files("otel_straggler.dashboards") / "files", "")))


def export(folder: Path) -> list[Path]:
    """Write all of them, over what is there; the paths written.

    Raises:
        OSError: the folder cannot be written.
    """
    written = []
    for name, text in shipped().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        written.append(file)
    return written


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.read_text(encoding="utf-8")
