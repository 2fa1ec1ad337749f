"""``otel-straggler dashboards preview``: pages for Grafana, drawn without Grafana."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from otel_straggler.dashboards.preview.boxes import Box
from otel_straggler.dashboards.preview.build import SCRAPE_S, WIDTH_PX, Settings, preview_pages
from otel_straggler.dashboards.preview.colours import THEMES
from otel_straggler.dashboards.preview.pages import read
from otel_straggler.dashboards.preview.ranges import seconds

EMPTY = 1


@click.command(short_help="Draw the pages from a Prometheus, without Grafana.")
@click.option("--prometheus", "url", metavar="URL", required=True, help="Whom the pages ask.")
@click.option("--page", "names", metavar="NAME", multiple=True, help="Only this page; repeatable.")
@click.option(
    "--var", "values", metavar="NAME=VALUE", multiple=True,
    help="Value of a variable; repeat it for several values.",
)  # fmt: skip
@click.option("--from", "begin", metavar="TIME", default="", help="Default: as the page says.")
@click.option("--to", "end", metavar="TIME", default="", help="Default: as the page says.")
@click.option(
    "-o", "--output", "file", default="preview.html", show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
)  # fmt: skip
@click.option(
    "--dir", "folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Pages of this folder in place of those that the package carries.",
)  # fmt: skip
@click.option("--width", "width_px", default=WIDTH_PX, show_default=True, help="Of the window, px.")
@click.option(
    "--scrape-interval", default=f"{SCRAPE_S:g}s", show_default=True,
    help="What Grafana's data source is told.",
)  # fmt: skip
@click.option("--theme", type=click.Choice(THEMES), default=THEMES[0], show_default=True)
@click.option("--check", is_flag=True, help="Exit with 1 if a panel drew nothing.")
def preview(
    url: str, names: tuple[str, ...], values: tuple[str, ...], begin: str, end: str, file: Path,
    folder: Path | None, width_px: int, scrape_interval: str, theme: str, check: bool,
) -> int:  # fmt: skip
    """Draw the pages from the answers of a Prometheus into one HTML file.

    What is drawn is the JSON that Grafana would read; it is a preview and not Grafana.
    """
    settings = Settings(
        url, _by_name(values), begin, end, width_px, seconds(scrape_interval), theme
    )
    html, boxes = preview_pages(read(folder, names), settings)
    file.write_text(html, encoding="utf-8")
    for line in summary(boxes):
        click.echo(line)
    click.echo(f"{file}: {len(html.encode()) / 1e6:.1f} MB")
    is_short = any(box.state != "drawn" for box in boxes)
    return EMPTY if check and is_short else 0


def summary(boxes: Sequence[Box]) -> list[str]:
    """A line for each panel, with what went wrong below it, and a line that counts them."""
    lines = []
    for box in boxes:
        counts = f"{box.n_series:>5} series {box.n_points:>7} points"
        lines.append(f"{box.state:<8} {counts}  {box.page} / {box.title}")
        lines += [f"           {text}" for text in box.said]
    drawn = sum(box.state == "drawn" for box in boxes)
    return [*lines, f"{drawn} of {len(boxes)} panels drew data"]


def _by_name(values: Sequence[str]) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for value in values:
        name, equals, held = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", param_hint="--var")
        chosen.setdefault(name, []).append(held)
    return chosen
