"""Every page, by its file name. Takes a tenth of a second."""

from __future__ import annotations

from otel_straggler.dashboards import fleet, liveness, matrix, pipeline, rank, run


def render_all() -> dict[str, str]:
    pages = (fleet, run, matrix, rank, liveness, pipeline)
    return {f"{made.__name__.rpartition('.')[2]}.json": made.render() for made in pages}
