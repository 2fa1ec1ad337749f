"""``otel-straggler doctor``: find why no telemetry arrives."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.exchange import DEFAULT_COLLECTOR, base_url
from otel_straggler.cli.text import many, printable, report_console
from otel_straggler.doctor.examination import Options, examine
from otel_straggler.doctor.findings import Finding, Status, findings_json
from otel_straggler.errors import ConfigError
from otel_straggler.strict_json import whole_number

PROBLEM_RESULT = 1
_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "info": ("--", "dim"),
    "warning": ("!!", "yellow"),
    "problem": ("XX", "bold red"),
}
_MAX_TEXT = 1_000


@click.command()
@click.option("--endpoint", metavar="URL", help="As configure(endpoint=...).")
@click.option("--protocol", metavar="NAME", help="As configure(protocol=...).")
@click.option(
    "--collector", metavar="URL",
    help="Its --metrics address.  [default: host of the endpoint, port 9464]",
)  # fmt: skip
@click.option("--run", "run_id", metavar="RUN", help="Look at this run.  [default: this job's]")
@click.option("--timeout", "timeout_s", default=5.0, show_default=True, help="Seconds per request.")
@click.option(
    "--sections-per-step", default=10.0, show_default=True,
    help="For the volume, if it cannot be measured.",
)  # fmt: skip
@click.option("--step-seconds", default=1.0, show_default=True, help="For the volume, too.")
@click.option("--json", "as_json", is_flag=True, help="All findings as one JSON object.")
def command(
    endpoint: str | None,
    protocol: str | None,
    collector: str | None,
    run_id: str | None,
    timeout_s: float,
    sections_per_step: float,
    step_seconds: float,
    as_json: bool,
) -> int:
    """Find why telemetry or scores are missing.

    Run it with the environment of the training: in the job script before the training, with srun
    or `torchrun --no-python otel-straggler doctor` on every rank, or in a terminal. It
    changes nothing and sends only empty requests. A rank other than 0 prints its problems only.

    Exit code: 0 without a problem, 1 with one, 2 for wrong use.
    """
    options = Options(
        endpoint=endpoint,
        protocol=protocol,
        collector=collector and base_url(collector, "--collector", DEFAULT_COLLECTOR),
        run=run_id,
        timeout_s=_checked("--timeout", timeout_s),
        sections_per_step=_checked("--sections-per-step", sections_per_step),
        step_s=_checked("--step-seconds", step_seconds),
    )
    rank = _rank()
    if as_json:
        findings = list(examine(options, os.environ))
        click.echo(json.dumps(findings_json(findings, rank), indent=2, default=str))
    else:
        findings = list(_shown(report_console(), examine(options, os.environ), rank))
    return PROBLEM_RESULT if any(f.status == "problem" for f in findings) else 0


def _shown(console: Console, findings: Iterable[Finding], rank: int | None) -> Iterator[Finding]:
    """Print findings as they come; of a rank other than 0, problems only."""
    counts: dict[Status, int] = dict.fromkeys(_MARKS, 0)
    subject = ""
    for finding in findings:
        counts[finding.status] += 1
        if not rank:
            if finding.subject != subject:
                subject = finding.subject
                title = "Installed" if subject == "versions" else subject.capitalize()
                console.print(Text(title, style="bold"))
            _print(console, finding)
        elif finding.status == "problem":
            _print(console, finding, f"rank {rank}: ")
        yield finding
    if not rank:
        console.print(_summary(counts))


def _print(console: Console, finding: Finding, before: str = "") -> None:
    mark, style = _MARKS[finding.status]
    reported = Text(before + printable(finding.sentence, _MAX_TEXT), overflow="fold")
    if finding.remedy:
        reported.append(f"\n{printable(finding.remedy, _MAX_TEXT)}", style="cyan")
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(" ", Text(mark, style=style), reported)
    console.print(row)


def _summary(counts: dict[Status, int]) -> Text:
    problems, warnings = counts["problem"], counts["warning"]
    style = "bold red" if problems else "yellow" if warnings else "bold green"
    found = ((problems, "problem"), (warnings, "warning"))
    text = ", ".join(many(n, what) if n else f"no {what}s" for n, what in found)
    return Text(f"{text}.", style=style)


def _rank() -> int | None:
    text = os.environ.get("RANK", "").strip() or os.environ.get("SLURM_PROCID", "").strip()
    return whole_number(text)


def _checked(flag: str, value: float) -> float:
    if math.isfinite(value) and 0 < value <= 86_400:
        return value
    raise ConfigError.of(
        flag, value, "a number above 0, at most 86400", "Leave it out for the default."
    )
