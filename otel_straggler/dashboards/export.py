"""Dashboards as files: rendered from the code, and exported from what a wheel carries."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

FILES: Final = Path(__file__).parent / "files"
"""Dashboards, provisioning for Grafana, a compose example: in a checkout a link to `dashboards/` at
the top level."""


def export(folder: Path) -> list[Path]:
    """Write all files, over existing ones; the paths written, sorted.

    Raises:
        OSError: the folder cannot be written.
    """
    names = sorted(file.relative_to(FILES) for file in FILES.rglob("*") if file.is_file())
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FILES / name, folder / name)
    return [folder / name for name in names]


def render_all() -> dict[str, str]:
    """Every page, by its file name. Needs ``grafana-foundation-sdk``."""
    from otel_straggler.dashboards import fleet, liveness, matrix, pipeline, rank, run

    pages = (fleet, run, matrix, rank, liveness, pipeline)
    return {f"{page.__name__.rpartition('.')[2]}.json": page.render() for page in pages}
