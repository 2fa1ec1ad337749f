"""``otel-straggler hang``: which rank the others wait for, and what it was doing."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from otel_straggler import semconv
from otel_straggler.cli.diagnostics import (
    diagnostics_json,
    diagnostics_lines,
    read_diagnostics,
)
from otel_straggler.cli.exchange import DEFAULT_COLLECTOR, RefusedError, Server, collector_url
from otel_straggler.cli.hang_stacks import stacks
from otel_straggler.cli.text import AS_JSON, print_json, printable
from otel_straggler.collector.settings_file import TOKEN_VARIABLE
from otel_straggler.collector.views.collective_json import findings_json, findings_lines
from otel_straggler.detect.hangs.collectives import find_hang
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.model.rank_names import ranks_text
from otel_straggler.recordings.diagnostics_files import read_flight_records

_READ = "read"


class _ReadsByDefault(click.Group):
    """``hang DIR`` reads a folder; a folder named like a verb is given as ``./stacks``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [_READ, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_ReadsByDefault,
    short_help="Find which ranks did not join which collective, and what they did.",
    subcommand_metavar="DIR | COMMAND [ARGS]...",
)
def command() -> None:
    """Find which rank a hang waits for, and what it was doing.

    With a folder: read its flight records, stacks and rings. See 'hang read --help'.
    """


@command.command(_READ)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--run", metavar="ID", help="Of stacks and rings, those of this run.")
@AS_JSON
def read(folder: Path, run: str | None, as_json: bool) -> None:
    """Read a folder of diagnostics; 'hang DIR' is the same.

    DIR has dumps of PyTorch's flight recorder, one for each rank (TORCH_NCCL_DUMP_ON_TIMEOUT=1,
    TORCH_NCCL_TRACE_BUFFER_SIZE=2000), files of stacks (OTEL_STRAGGLER_EVIDENCE_DIR), ring files
    (OTEL_STRAGGLER_RING_DIR), or several of them. Dumps are pickles; one that holds more than plain
    data is not read.
    """
    diagnostics = read_diagnostics(folder, run)
    has_any = bool(diagnostics.stacks or diagnostics.rings)
    records, remarks = _flight_records(folder, is_needed=not has_any and not diagnostics.remarks)
    remarks += diagnostics.remarks
    result = find_hang(records)
    if as_json:
        print_json({**findings_json(result), **diagnostics_json(diagnostics), "remarks": remarks})
        return
    for line in (*(findings_lines(result) if records else ()), *diagnostics_lines(diagnostics)):
        click.echo(line)
    if records:
        click.echo(f"Read: the dumps of {ranks_text(list(result.ranks))}.", err=True)
    if has_any:
        of_run = f" of run {diagnostics.run}" if diagnostics.run else ""
        counts = f"{len(diagnostics.stacks)} files of stacks, {len(diagnostics.rings)} rings"
        click.echo(f"Read: {counts}{of_run}.", err=True)
    for remark in remarks:
        click.echo(printable(remark, _MAX_LINE), err=True)


def _flight_records(folder: Path, *, is_needed: bool) -> tuple[list[FlightRecord], list[str]]:
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


_POLL_S = 0.5
_MAX_LINE = 600
_MAX_IDS = 50
"""Ids per request; each takes 17 of the 8,192 bytes that its line may have."""
_TEXT = {
    "done": "done",
    "failed": "failed; see its log",
    "refused": "refused: an older version, or OTEL_STRAGGLER_EVIDENCE_DIR is not set there",
    "expired": "did not fetch it in time",
    "waiting": "has not answered: commands are off there, or it holds the GIL or is stopped "
    "(try 'otel-straggler hang stacks' on its host)",
}


@click.command(short_help="Have a collector request flight records or stacks of ranks.")
@click.option(
    "--collector", default=DEFAULT_COLLECTOR, show_default=True, help="Its --metrics URL."
)
@click.option("--run", "run_id", metavar="ID", required=True, help="Of which run.")
@click.option("--group", default="", metavar="NAME", help="Of which of its groups.")
@click.option("--rank", "ranks", type=int, multiple=True, help="Several may be given; all if none.")
@click.option("--wait", "wait_s", type=float, default=30.0, show_default=True, metavar="S",
              help="For the answers; 0: do not wait.")  # fmt: skip
@click.argument("verb", type=click.Choice(semconv.HANG_VERBS))
def ask(
    collector: str, run_id: str, group: str, ranks: tuple[int, ...], wait_s: float, verb: str
) -> None:
    """Send a command to ranks through their collector; both sides must allow it.

    The collector's token is read from OTEL_STRAGGLER_COMMANDS_TOKEN. Ranks answer with their next
    heartbeat: dump_stacks writes to their own OTEL_STRAGGLER_EVIDENCE_DIR, dump_flight_record sends
    to the collector, which compares the records while the run is stuck.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    server = Server(
        url=collector_url(collector),
        expected="a collector that accepts commands",
        remedy="Is it running, and does its file set commands.enabled?",
        headers={semconv.COMMANDS_TOKEN_HEADER: token} if token else {},
        is_collector=True,
    )
    asked: dict[str, Any] = {"verb": verb, "run": run_id, "group": group}
    if ranks:
        asked["ranks"] = list(ranks)
    reported = _asked(server, semconv.COMMANDS_PATH, asked)
    rank_of = {str(one["id"]): int(one["rank"]) for one in reported["commands"]}
    click.echo(f"Asked {ranks_text(list(rank_of.values()))} of run {printable(run_id)}: {verb}.")
    if wait_s > 0:
        _print(_outcomes(server, rank_of, wait_s), rank_of)
    if wait_s > 0 and verb == semconv.DUMP_FLIGHT_RECORD:
        for line in _compared(server, run_id, group):
            click.echo(line)


def _compared(server: Server, run_id: str, group: str) -> list[str]:
    """What the flight records say by now."""
    query = urlencode({"run": run_id, "group": group})
    run = _asked(server, f"/v1/report?{query}")["runs"].get(run_id, {})
    found = [world["collective"] for world in run.get("liveness", ()) if world.get("collective")]
    lines = [printable(line, _MAX_LINE) for each in found for line in each["sentences"]]
    return lines or ["The flight records name no rank, or the run is not stuck."]


def _outcomes(server: Server, rank_of: Mapping[str, int], wait_s: float) -> dict[str, str]:
    ends_at_s = time.monotonic() + wait_s
    outcomes = dict.fromkeys(rank_of, "waiting")
    while True:
        open_ids = [id_ for id_, outcome in outcomes.items() if outcome == "waiting"]
        for first in range(0, len(open_ids), _MAX_IDS):
            query = urlencode({"ids": ",".join(open_ids[first : first + _MAX_IDS])})
            answer = _asked(server, f"{semconv.COMMANDS_PATH}?{query}")
            whys = answer.get("why", {})
            outcomes |= answer["outcomes"] | {id_: f"refused: {why}" for id_, why in whys.items()}
        if "waiting" not in outcomes.values() or time.monotonic() >= ends_at_s:
            return outcomes
        time.sleep(_POLL_S)


def _print(outcomes: Mapping[str, str], rank_of: Mapping[str, int]) -> None:
    for outcome in Counter(outcomes.values()):
        who = ranks_text([rank_of[id_] for id_, one in outcomes.items() if one == outcome])
        click.echo(
            f"{who[0].upper()}{who[1:]}: {_TEXT.get(outcome, printable(outcome, _MAX_LINE))}."
        )


def _asked(server: Server, path: str, body: Any = None) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = server.ask(path, body)
    except RefusedError as error:
        if error.status not in {401, 403}:
            raise
        value, remedy = "nothing" if error.status == 401 else "...", "Set it in this shell."
        expected = "the collector's commands.token"
        raise ConfigError.of(TOKEN_VARIABLE, value, expected, remedy) from error
    return answer


command.add_command(ask)
