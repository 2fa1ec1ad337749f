"""``otel-straggler inject``: start a training whose ranks inject faults into themselves."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click
from rich.table import Table

from otel_straggler.cli.text import printable, report_console
from otel_straggler.errors import UnavailableError
from otel_straggler.inject.faults import KINDS, MAX_S, Fault
from otel_straggler.inject.plan import DEFAULT_KINDS, InjectionPlan, read_plan

VARIABLE = "OTEL_STRAGGLER_INJECT"
_MAX_SHOWN = 1_000
_KINDS = "\n".join(
    f"  {name + ('' if kind.min_size is None else ':SIZE'):<20}{kind.meaning}"
    for name, kind in KINDS.items()
)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="\b\nFaults:\n" + _KINDS,
)
@click.option("--fault", "faults", multiple=True, metavar="FAULT", help="May be repeated.")
@click.option("--plan", type=click.Path(path_type=Path), metavar="FILE", help="CSV or YAML.")
@click.option("--mtbf", type=float, metavar="SECONDS", help="Between two faults of one rank: mean.")
@click.option("--interval", type=float, metavar="SECONDS", help="Between two faults of the job.")
@click.option("--seed", type=int, help="Of the faults that are drawn.  [default: 0]")
@click.option(
    "--kinds", metavar="KIND,...", help=f"To draw from.  [default: {','.join(DEFAULT_KINDS)}]"
)
@click.option("--until", type=float, metavar="SECONDS", help="No fault is drawn after that.")
@click.option("--folder", metavar="PATH", help="That disk_full fills, on a disk of its own.")
@click.option("--kernel-log", metavar="FILE", help="That xid writes to.")
@click.option("--interface", metavar="NAME", help="That network faults act on.")
@click.option("--ranks", type=click.IntRange(1), help="Of the job, for --dry-run.")
@click.option("--attempt", type=click.IntRange(0), default=0, help="To show with --dry-run.")
@click.option("--dry-run", is_flag=True, help="Print the plan.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def command(
    faults: tuple[str, ...],
    plan: Path | None,
    ranks: int | None,
    attempt: int,
    dry_run: bool,
    command: tuple[str, ...],
    **options: object,
) -> None:
    """Start a training whose ranks inject faults into themselves.

    \b
        otel-straggler inject --fault compute:1.5@rank3:step40-60 -- \\
            otel-straggler run --nproc-per-node 4 train.py
        otel-straggler inject --mtbf 3600 --seed 7 --ranks 64 --until 7200 --dry-run

    The plan travels in OTEL_STRAGGLER_INJECT, which every rank reads when its telemetry begins;
    without a COMMAND the line that sets it is printed. A fault is KIND:SIZE, @ its ranks, : when:
    @rank3 @rank1,2 @host0 @rail0 @all; :step40 :step40-60 :step40+20s :30s :30s-50s, and :attempt1
    for what belongs to a restarted job. Each is a span, fault.injection, of its run.
    """
    whole = _plan(faults, plan, options)
    if dry_run:
        _print(whole, ranks, attempt)
        return
    if not command:
        click.echo(f"export {VARIABLE}={shlex.quote(str(whole))}")
        return
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, {**os.environ, VARIABLE: str(whole)})  # noqa: S606
    except OSError as error:
        raise UnavailableError.of(
            "otel-straggler inject", command[0], f"a program ({error.strerror})", "Check its path."
        ) from error


def _plan(faults: tuple[str, ...], file: Path | None, options: dict[str, object]) -> InjectionPlan:
    given = {name: str(value) for name, value in options.items() if value is not None}
    if file is not None:
        if faults or given:
            raise click.UsageError("--plan: got other faults or options; the file has all of them")
        return read_plan(file)
    if not faults and not given.keys() & {"mtbf", "interval"}:
        if "seed" not in given:
            raise click.UsageError("got no faults; expected --fault, --plan, --interval or --mtbf")
        given["interval"] = "60"
    return InjectionPlan.of(tuple(map(Fault.parse, faults)), given)


def _print(plan: InjectionPlan, ranks: int | None, attempt: int) -> None:
    world_size = ranks or int(os.environ.get("WORLD_SIZE", "0") or 0)
    if plan.drawn is not None and not world_size:
        raise click.UsageError("--dry-run: got no --ranks; faults are drawn for each rank")
    planned = plan.of_job(world_size, attempt)
    table = Table(box=None, pad_edge=False)
    for name in ("begins", "kind", "size", "ranks", "ends"):
        table.add_column(name)
    for fault in planned[:_MAX_SHOWN]:
        table.add_row(*map(printable, _row(fault)))
    report_console().print(table)
    if len(planned) > _MAX_SHOWN:
        click.echo(f"and {len(planned) - _MAX_SHOWN} more")


def _row(fault: Fault) -> tuple[str, ...]:
    begins = f"{fault.onset_s:g} s" if fault.onset_step is None else f"step {fault.onset_step}"
    ends = "" if fault.lasts_s == MAX_S else f"after {fault.lasts_s:g} s"
    if fault.end_step is not None:
        ends = f"step {fault.end_step}"
    size = "" if KINDS[fault.kind].min_size is None else f"{fault.size:g}"
    return begins, fault.kind, size, fault.who, ends
