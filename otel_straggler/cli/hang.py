"""``otel-straggler hang``: who is waited for, and what it was doing."""

from __future__ import annotations

import json
from pathlib import Path

import click

from otel_straggler.cli.evidence import gather
from otel_straggler.cli.evidence_lines import evidence_json, evidence_lines
from otel_straggler.cli.hang_ask import ask
from otel_straggler.cli.hang_lines import hang_json, hang_lines
from otel_straggler.cli.hang_stacks import stacks
from otel_straggler.errors import InputError
from otel_straggler.model.flight_record import FlightRecord
from otel_straggler.publish.hang_json import ranks_text
from otel_straggler.receive.flight_records import read_flight_records
from otel_straggler.score.hangs.collectives import find_hang

_READ = "read"


class _ReadsByDefault(click.Group):
    """``hang DIR`` reads a folder; a folder with the name of a verb is given as ``./stacks``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [_READ, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_ReadsByDefault,
    short_help="Say which ranks did not join which collective, and what they did.",
    subcommand_metavar="DIR | COMMAND [ARGS]...",
)
def command() -> None:
    """Say of a hang who is waited for, and what it was doing.

    With a folder: what the flight records, stacks and rings in it say. See 'hang read --help'.
    """


@command.command(_READ)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--run", metavar="ID", help="Of stacks and rings, those of this run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def read(folder: Path, run: str | None, as_json: bool) -> None:
    """Read a folder of evidence; 'hang DIR' is the same.

    DIR has dumps of PyTorch's flight recorder, one for each rank (TORCH_NCCL_DUMP_ON_TIMEOUT=1,
    TORCH_NCCL_TRACE_BUFFER_SIZE=2000), files of stacks (OTEL_STRAGGLER_EVIDENCE_DIR), ring files
    (OTEL_STRAGGLER_RING_DIR), or several of them. Dumps are pickles; one that holds more than plain
    data is not read.
    """
    evidence = gather(folder, run)
    has_evidence = bool(evidence.stacks or evidence.rings)
    records, remarks = _flight_records(folder, is_needed=not has_evidence and not evidence.remarks)
    remarks += evidence.remarks
    found = find_hang(records)
    if as_json:
        told = {**hang_json(found), **evidence_json(evidence), "remarks": remarks}
        click.echo(json.dumps(told, separators=(",", ":")))
        return
    for line in (*(hang_lines(found) if records else ()), *evidence_lines(evidence)):
        click.echo(line)
    if records:
        click.echo(f"Read: the dumps of {ranks_text(list(found.ranks))}.", err=True)
    if has_evidence:
        of_run = f" of run {evidence.run}" if evidence.run else ""
        counts = f"{len(evidence.stacks)} files of stacks, {len(evidence.rings)} rings"
        click.echo(f"Read: {counts}{of_run}.", err=True)
    for remark in remarks:
        click.echo(remark, err=True)


def _flight_records(folder: Path, *, is_needed: bool) -> tuple[list[FlightRecord], list[str]]:
    """Where there is other evidence a folder need not have any."""
    try:
        return read_flight_records(folder)
    except InputError as error:
        if not folder.is_dir():
            raise
        if is_needed:
            others = "Stacks (OTEL_STRAGGLER_EVIDENCE_DIR) and rings (OTEL_STRAGGLER_RING_DIR)"
            raise InputError(f"{error} {others} of ranks would do as well.") from error
        return [], []


command.add_command(stacks)
command.add_command(ask)
