"""``otel-straggler hang stacks``: the stacks of ranks on this host, taken from outside."""

from __future__ import annotations

import os
from pathlib import Path

import click

from otel_straggler.cli.report_table import printable
from otel_straggler.cli.stacks_from_outside import Target, find_py_spy, take, targets_in
from otel_straggler.errors import ConfigError, InputError, describe
from otel_straggler.model.stacks import StacksDump
from otel_straggler.score.hangs.stacks import own_frame

_DIR = "OTEL_STRAGGLER_EVIDENCE_DIR"


@click.command(short_help="Take the stacks of ranks on this host, from outside.")
@click.option("--pid", type=int, help="Of this process.")
@click.option("--rank", "ranks", type=int, multiple=True, help="Several may be given; all if none.")
@click.option("--run", "run_id", metavar="ID", help="Of which run, if there are several.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR",
              help=f"Where ranks write their stacks.  [default: ${_DIR}]")  # fmt: skip
@click.option("--native", is_flag=True, help="Frames of C and C++ too; only py-spy can.")
@click.option("--signal-only", is_flag=True, help="Do not use py-spy.")
def stacks(
    pid: int | None,
    ranks: tuple[int, ...],
    run_id: str | None,
    folder: Path | None,
    native: bool,
    signal_only: bool,
) -> None:
    """Take stacks of ranks on this host, also of one that holds the GIL.

    py-spy takes them if it is installed (pip install py-spy) and may trace the process; without it
    the process is sent the signal that it has announced in its file of stacks, and writes them by a
    handler in C. Stacks go to the rank's file in DIR; with --pid and without such a file, to the
    terminal.
    """
    if folder is None and os.environ.get(_DIR, "").strip():
        folder = Path(os.environ[_DIR].strip())
    wanted = _targets(pid, ranks, run_id, folder)
    py_spy = None if signal_only else find_py_spy()
    if py_spy is None and not signal_only:
        click.echo("py-spy is not installed: ranks are sent their signal instead.", err=True)
    failures = 0
    for target in wanted:
        try:
            dump, remark = take(target, py_spy, native=native)
        except InputError as error:
            failures += 1
            click.echo(f"{target.name}: {error}", err=True)
            continue
        if remark:
            click.echo(f"{target.name}: {remark}", err=True)
        _say(target, dump)
    if failures:
        raise click.exceptions.Exit(1)


def _targets(
    pid: int | None, ranks: tuple[int, ...], run_id: str | None, folder: Path | None
) -> list[Target]:
    known = [] if folder is None else targets_in(folder)
    found = [
        target
        for target in known
        if (pid is None or target.pid == pid)
        and (not ranks or target.rank in ranks)
        and (run_id is None or target.run == run_id)
    ]
    if not found and pid is not None and not ranks:
        return [Target(pid=pid)]
    if found:
        return found
    some = ", ".join(target.name for target in known[:20])
    raise ConfigError(
        describe(
            where="hang stacks",
            value=", ".join(map(str, ranks)) if ranks else str(folder or "no folder"),
            expected=f"one of: {some}" if some else "files of living ranks of this host",
            remedy=f"Name the folder with --dir or {_DIR}, or a process with --pid.",
        )
    )


def _say(target: Target, dump: StacksDump) -> None:
    main = dump.main
    frame = None if main is None else own_frame(main) or next(iter(main.frames), None)
    where = "no function of Python"
    if frame is not None:
        file = frame.file.rpartition("/")[2]
        where = f"{printable(frame.function)} ({printable(file)}, line {frame.line})"
    gil = ", and holds the GIL" if main is not None and main.holds_gil else ""
    click.echo(f"{target.name}: the main thread is in {where}{gil}.")
    if target.path is not None:
        click.echo(f"  All {len(dump.threads)} threads are in {target.path}")
        return
    for thread in dump.threads:
        click.echo(f"  {printable(thread.name) or hex(thread.number)}")
        for one in thread.frames:
            click.echo(f"    {printable(one.function)} ({printable(one.file, 200)}:{one.line})")
