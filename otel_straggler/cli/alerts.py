"""``otel-straggler alerts``: rules for Prometheus and Alertmanager, and whether they are right."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from otel_straggler.alerts.catalogue import NAMES
from otel_straggler.alerts.checking import (
    findings_in_config,
    findings_in_rules,
    findings_of_program,
    read_file,
)
from otel_straggler.alerts.render import PARTS, render_all
from otel_straggler.alerts.runbook_page import chapter
from otel_straggler.alerts.settings import AlertSettings, parse_settings
from otel_straggler.errors import ConfigError, UsageError, describe

_ELSEWHERE: Final = ("test",)
"""Sub-commands that are loaded when they are called, from ``cli/alerts_<name>.py``."""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _ELSEWHERE:
            command: click.Command = import_module(f"otel_straggler.cli.alerts_{cmd_name}").command
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group, short_help="Render alert rules, check them, read the runbook.")
def command() -> None:
    """Render alert rules for Prometheus and Alertmanager, check them, read the runbook."""


@command.command(short_help="Write rules, an example for Alertmanager, templates, the runbook.")
@click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", help="Another threshold; repeatable."
)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write files there.",
)
@click.option("--only", type=click.Choice(list(PARTS)), help="Only this part.")
def render(values: tuple[str, ...], folder: Path | None, only: str | None) -> None:
    """Write rules, recording rules, an example for Alertmanager, templates and the runbook.

    Without --out the one file that --only names is printed. Thresholds are listed in
    docs/alerts.md.
    """
    settings = parse_settings(values)
    rendered = PARTS[only](settings) if only else render_all(settings)
    if folder is not None:
        _write(rendered, folder)
    elif only is None:
        raise UsageError(
            describe(
                where="alerts render",
                value="no --out and no --only",
                expected="a folder for all files, or one part to print",
                remedy=f"Say --out DIR, or --only {'|'.join(PARTS)}.",
            )
        )
    else:
        click.echo(next(iter(rendered.values())), nl=False)


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", help="Another threshold; repeatable."
)
def export(folder: Path, values: tuple[str, ...]) -> None:
    """Write all of it into DIR; the same as render --out DIR."""
    _write(render_all(parse_settings(values)), folder)


def _write(rendered: dict[str, str], folder: Path) -> None:
    for name, text in rendered.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        click.echo(str(file))


@command.command(short_help="Say what is wrong with files of rules and configurations.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def check(files: tuple[Path, ...]) -> int:
    """Say what is wrong with FILES: rules for Prometheus, configurations of Alertmanager.

    PromQL, metrics and labels are looked at (with the package promql-parser), and promtool and
    amtool are asked where they are installed. Exit code 1 if anything is wrong.
    """
    if not files:
        raise UsageError(
            describe(
                where="alerts check",
                value="no file",
                expected="at least one",
                remedy="For example alerts/otel-straggler-rules.yaml.",
            )
        )
    return max(_check(file) for file in files)


def _check(file: Path) -> int:
    document = read_file(file)
    is_rules = "groups" in document
    found = findings_in_config(document) if not is_rules else []
    if is_rules and find_spec("promql_parser") is None:
        click.echo(f"{file}: PromQL not looked at: pip install promql-parser", err=True)
    elif is_rules:
        found += findings_in_rules(document)
    said = findings_of_program(file, document)
    if said is None:
        program = "promtool" if is_rules else "amtool"
        click.echo(f"{file}: {program} is not installed, so it was not asked", err=True)
    found += said or []
    for finding in found:
        click.echo(f"{file}: {finding}")
    if not found:
        click.echo(f"{file}: nothing wrong")
    return int(bool(found))


@command.command()
@click.argument("name", metavar="ALERT")
def runbook(name: str) -> None:
    """Print what an alert means and what to do first."""
    wanted = {n.lower(): n for n in NAMES} | {n.lower().removeprefix("straggler"): n for n in NAMES}
    if name.lower() not in wanted:
        raise ConfigError(
            describe(
                where="ALERT",
                value=name,
                expected=f"one of {', '.join(NAMES)}",
                remedy="Case does not matter, and 'Straggler' may be left out.",
            )
        )
    click.echo(chapter(wanted[name.lower()], AlertSettings()), nl=False)
