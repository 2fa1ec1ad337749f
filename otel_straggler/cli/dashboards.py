"""``otel-straggler dashboards``: dashboards for Grafana, as files."""

from __future__ import annotations

from pathlib import Path

import click

from otel_straggler.dashboards.export import export as export_files


@click.group()
def command() -> None:
    """Dashboards for Grafana over the metrics of a collector."""


@command.command(short_help="Write dashboards, provisioning and a compose example into DIR.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def export(folder: Path) -> None:
    """Write dashboards, provisioning files and a compose example into DIR.

    Existing files are replaced.
    """
    for file in export_files(folder):
        click.echo(str(file))
