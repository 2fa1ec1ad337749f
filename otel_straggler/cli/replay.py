"""``otel-straggler replay``: what settings would have done on recorded telemetry."""

from __future__ import annotations

import dataclasses
import json

import click

from otel_straggler.cli.page_report import (
    Recorded,
    is_history,
    judge_all,
    pages_json,
    pages_of_history,
    pages_of_recording,
    print_pages,
)
from otel_straggler.cli.report_table import report_console
from otel_straggler.cli.score import configured, read_input, report_what_is_left_out
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.errors import ConfigError


@click.command(short_help="Say what settings would have done on what was recorded.")
@click.argument("file")
@click.option(
    "--would-have-paged",
    "question",
    flag_value="paged",
    help="Who would have been called: pages per week and cause.",
)
@click.option(
    "--config",
    metavar="FILE",
    help="Settings of the collector: of them, attributes, spans and verdicts hold.",
)
@click.option("--run", "run_id", metavar="ID", help="This run only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; all pages.")
def command(
    file: str, question: str | None, config: str | None, run_id: str | None, as_json: bool
) -> None:
    """Say what settings would have done on what was recorded.

    FILE is telemetry as `otel-straggler score` takes it (- for standard input), which is judged in
    full, or the history of a collector (--history), in which the settings for paging are applied
    to the verdicts that it holds. The content says which.

    otel-straggler replay history.db --would-have-paged --config collector.yaml
    """
    if question is None:
        raise click.UsageError("Nothing was asked: give --would-have-paged")
    recorded, settings = _recorded(file, config)
    recorded = _only(recorded, run_id, file)
    if as_json:
        report = pages_json(recorded, settings)
        click.echo(json.dumps(report, allow_nan=False, separators=(",", ":")))
    else:
        print_pages(recorded, settings, file, report_console())


def _recorded(file: str, config: str | None) -> tuple[Recorded, VerdictSettings]:
    decoders, settings = configured(config)
    if file != "-" and is_history(file):
        return pages_of_history(file, settings), settings
    recording = read_input(file, decoders)
    scorer = judge_all(recording, settings)
    report_what_is_left_out(recording, scorer, file)
    return pages_of_recording(recording, scorer), settings


def _only(recorded: Recorded, run_id: str | None, file: str) -> Recorded:
    if run_id is None:
        return recorded
    runs = tuple(run for run in recorded.runs if run.run_id == run_id)
    if not runs:
        raise ConfigError.of(
            "--run",
            run_id,
            f"one of the {len(recorded.runs)} runs in {file}",
            "Leave --run out for all.",
        )
    return dataclasses.replace(recorded, runs=runs)
