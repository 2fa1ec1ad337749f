"""Stacks of another process on this machine: by py-spy, else by the signal it has announced."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from otel_straggler.cli.diagnostics import frame_text
from otel_straggler.cli.exchange import DEFAULT_COLLECTOR
from otel_straggler.cli.hang_targets import (
    EVIDENCE_DIR,
    Target,
    check_origin,
    check_rank,
    find_targets,
)
from otel_straggler.cli.text import printable
from otel_straggler.client.diagnostics.processes import ProcessHandle, is_stacks_signal
from otel_straggler.detect.hangs.stacks import own_frame
from otel_straggler.errors import InputError
from otel_straggler.model.diagnostics import StacksDump, StacksHead, parse_dumps
from otel_straggler.recordings.diagnostics_files import (
    MAX_READ_BYTES,
)
from otel_straggler.regular_files import open_regular
from otel_straggler.strict_json import parse_json, whole_number

_PY_SPY_S = 30.0
_SIGNAL_S = 5.0
_STILL_S = 0.3
_POLL_S = 0.05
_MAX_LINE = 600


def find_py_spy() -> str | None:
    """Next to this interpreter, else on the path."""
    own = Path(sys.executable).parent / "py-spy"
    return str(own) if own.is_file() else shutil.which("py-spy")


def take_stacks(target: Target, py_spy: str | None, *, native: bool) -> tuple[StacksDump, str]:
    """The stacks of now, and a remark; appended to the target's file if it has one. The process is
    opened before it is checked, so it cannot become another one in between.

    Raises:
        InputError: neither way works.
    """
    try:
        process = ProcessHandle(target.pid)
    except OSError as error:
        raise InputError("there is no such process") from error
    with contextlib.closing(process):
        if target.path is not None:
            check_origin(target, target.path)
        else:
            check_rank(target)
        remark = ""
        if py_spy is not None:
            try:
                return _by_py_spy(target, process, py_spy, native=native), ""
            except InputError as error:
                remark = str(error)
        try:
            return _by_signal(target, process), remark
        except InputError as error:
            raise InputError("; ".join(filter(None, (remark, str(error))))) from None


def _by_py_spy(target: Target, process: ProcessHandle, py_spy: str, *, native: bool) -> StacksDump:
    command = [py_spy, "dump", "--json", "--pid", str(target.pid)]
    if process.is_stopped:
        command.append("--nonblocking")  # it cannot be stopped once more
    if native:
        command.append("--native")
    try:
        done = subprocess.run(  # noqa: S603 (a program that the user has installed for this)
            command, capture_output=True, timeout=_PY_SPY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"py-spy: {error}") from error
    if not process.is_alive:
        raise InputError("it has ended meanwhile: what py-spy saw may be another process")
    if done.returncode != 0:
        output = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise InputError(f"py-spy could not: {output[0][:300]}")
    text = _head(target, "py-spy").text() + "\n".join(_lines(done.stdout)) + "\n"
    dumps = parse_dumps(text)
    if not dumps or not dumps[0].threads:
        raise InputError("py-spy saw no thread of Python")
    if target.path is not None:
        _append(target.path, text)
    return dumps[0]


def _by_signal(target: Target, process: ProcessHandle) -> StacksDump:
    """The handler is in C, so the GIL does not matter."""
    number = whole_number(target.head.signal)
    if target.path is None or number is None:
        raise InputError(
            "it has announced no signal for its stacks (OTEL_STRAGGLER_EVIDENCE_DIR), and without "
            "py-spy there is no other way"
        )
    if process.is_stopped:
        raise InputError("it is stopped (SIGSTOP, a debugger): it can write nothing")
    if not is_stacks_signal(number):
        raise InputError(f"it announces signal {number}, which is none for stacks")
    before = _send(target, process, target.path, number)
    for text in _settled(target.path, before):
        dumps = parse_dumps(text)
        if dumps and dumps[-1].threads:
            return dumps[-1]
    raise InputError("it did not answer its signal: is it in a call of the kernel (state D)?")


def _send(target: Target, process: ProcessHandle, path: Path, number: int) -> int:
    """Ask by signal; returns the size of the file before."""
    try:
        check_origin(target, path)
        if not process.handles(number):
            raise InputError(f"it takes signal {number} no longer")
        before = path.lstat().st_size
        _append(path, _head(target, "signal").text())
        process.signal(number)
    except OSError as error:
        raise InputError(f"it cannot be sent a signal: {error.strerror or error}") from error
    return before


def _settled(path: Path, before: int) -> Iterator[str]:
    """The text appended, each time nothing has come for a moment."""
    ends_at_s = time.monotonic() + _SIGNAL_S
    view, since_s = "", time.monotonic()
    while time.monotonic() < ends_at_s:
        time.sleep(_POLL_S)
        text = _text_after(path, before)
        if text != view:
            view, since_s = text, time.monotonic()
        elif time.monotonic() - since_s >= _STILL_S:
            yield view


def _text_after(path: Path, offset: int) -> str:
    """What follows ``offset`` bytes, at most 8 MiB."""
    try:
        file = open_regular(path, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return os.pread(file, MAX_READ_BYTES, offset).decode("utf-8", "replace")
    finally:
        os.close(file)


def _append(path: Path, text: str) -> None:
    """As root to the file of any user: :func:`check_origin` has compared it with the process."""
    owner = path.lstat().st_uid if os.geteuid() == 0 else None
    try:
        file = open_regular(path, os.O_WRONLY | os.O_APPEND, owner=owner)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _head(target: Target, by: str) -> StacksHead:
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    head = replace(target.head, at=at, why="asked on its host", by=by)
    return replace(head, pid=head.pid or str(target.pid))


def _lines(body: bytes) -> Iterator[str]:
    """py-spy's output in the format of faulthandler; malformed parts are left out."""
    try:
        threads: Any = parse_json(body, None)
    except ValueError:
        return
    for thread in _maps(threads):
        number = thread.get("thread_id")
        frames = _maps(thread.get("frames"))
        if type(number) is not int or not frames:
            continue
        gil = "holds the GIL, " if thread.get("owns_gil") else ""
        name = _one_line(thread.get("thread_name"))
        yield f"Thread 0x{number & (2**64 - 1):016x} [{name}] ({gil}most recent call first):"
        for frame in frames:
            file, function = _one_line(frame.get("filename")), _one_line(frame.get("name"))
            yield f'  File "{file}", line {frame.get("line") or "???"} in {function}'
        yield ""


def _maps(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _one_line(text: object) -> str:
    return " ".join(str(text or "").split())


_COLLECTOR = click.option(
    "--collector",
    metavar="URL",
    help=f"Ask this one which processes ranks are.  [default: {DEFAULT_COLLECTOR}]",
)


@click.command(short_help="Dump stacks of ranks on this host, from outside.")
@click.option("--pid", type=int, help="Of this process.")
@click.option("--rank", "ranks", type=int, multiple=True, help="Several may be given; all if none.")
@click.option("--run", "run_id", metavar="ID", help="Of which run, if there are several.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), metavar="DIR",
              help=f"Where ranks write their stacks.  [default: ${EVIDENCE_DIR}]")  # fmt: skip
@_COLLECTOR
@click.option("--native", is_flag=True, help="Frames of C and C++ too; only py-spy can.")
@click.option("--signal-only", is_flag=True, help="Do not use py-spy.")
def stacks(
    pid: int | None,
    ranks: tuple[int, ...],
    run_id: str | None,
    folder: Path | None,
    collector: str | None,
    native: bool,
    signal_only: bool,
) -> None:
    """Dump stacks of ranks on this host, also of one that holds the GIL.

    py-spy dumps them if it is installed (pip install py-spy) and may trace the process; without it
    the process is sent the signal that it has announced in its file of stacks, and writes them by a
    handler in C. Stacks go to the rank's file in DIR, else to the terminal. Where no file says
    which process a rank is, the collector does: ranks tell it with their heartbeats.
    """
    if folder is None and os.environ.get(EVIDENCE_DIR, "").strip():
        folder = Path(os.environ[EVIDENCE_DIR].strip())
    wanted = find_targets(pid, ranks, run_id, folder, collector)
    py_spy = None if signal_only else find_py_spy()
    if py_spy is None and not signal_only:
        click.echo("py-spy is not installed: ranks are sent their signal instead.", err=True)
    failures = 0
    for target in wanted:
        try:
            dump, remark = take_stacks(target, py_spy, native=native)
        except InputError as error:
            failures += 1
            click.echo(printable(f"{target.name}: {error}", _MAX_LINE), err=True)
        else:
            if remark:
                click.echo(printable(f"{target.name}: {remark}", _MAX_LINE), err=True)
            _print(target, dump)
    if failures:
        raise click.exceptions.Exit(1)


def _print(target: Target, dump: StacksDump) -> None:
    main = dump.main
    frame = None if main is None else own_frame(main) or next(iter(main.frames), None)
    gil = ", and holds the GIL" if main is not None and main.holds_gil else ""
    click.echo(f"{target.name}: the main thread is in {frame_text(frame)}{gil}.")
    if target.path is not None:
        path = printable(str(target.path), _MAX_LINE)
        click.echo(f"  All {len(dump.threads)} threads are in {path}")
        return
    for thread in dump.threads:
        click.echo(f"  {printable(thread.name) or hex(thread.number)}")
        for one in thread.frames:
            click.echo(f"    {printable(one.function)} ({printable(one.file, 200)}:{one.line})")
