"""``otel-straggler hang``: who did not join which collective."""

from __future__ import annotations

import json
from pathlib import Path

import click

from otel_straggler.cli.hang_lines import hang_json, hang_lines
from otel_straggler.publish.hang_json import ranks_text
from otel_straggler.receive.flight_records import read_flight_records
from otel_straggler.score.hangs.collectives import find_hang


@click.command(short_help="Say which ranks did not join which collective of a hang.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(folder: Path, as_json: bool) -> None:
    """Say which ranks did not join which collective of a hang.

    DIR has the dumps of PyTorch's flight recorder, one for each rank (TORCH_NCCL_DUMP_ON_TIMEOUT=1,
    TORCH_NCCL_TRACE_BUFFER_SIZE=2000). They are pickles; one that holds more than plain data is not
    read.
    """
    records, remarks = read_flight_records(folder)
    found = find_hang(records)
    if as_json:
        click.echo(json.dumps({**hang_json(found), "remarks": remarks}, separators=(",", ":")))
        return
    for line in hang_lines(found):
        click.echo(line)
    click.echo(f"Read: the dumps of {ranks_text(list(found.ranks))}.", err=True)
    for remark in remarks:
        click.echo(remark, err=True)
