"""The command line: one file per verb.

This file loads neither click nor rich, so that it can report in one line how to install them.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from otel_straggler.errors import StragglerError
from otel_straggler.model.names import visible

if TYPE_CHECKING:
    import click

MISSING_EXTRA = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
"""The exit code of a program ended by SIGPIPE; 1 has a meaning of its own in some verbs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``otel-straggler``; returns the exit code."""
    _tolerate_any_name()
    try:
        exit_code = _run(arguments)
    except BrokenPipeError:  # of what was wrong
        exit_code = BROKEN_PIPE
    if exit_code == BROKEN_PIPE:
        _discard_output()
    return exit_code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        import click

        from otel_straggler.cli.group import otel_straggler
    except ModuleNotFoundError as missing:
        if missing.name not in {"click", "rich"}:
            raise
        return _print_error(
            f"{missing.name} is not installed. Run: pip install 'otel-straggler[cli]'"
        )
    try:
        answer = otel_straggler.main(arguments, "otel-straggler", standalone_mode=False)
    except StragglerError as error:
        return _print_error(str(error), error.exit_code)
    except click.UsageError as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            error.show()  # its message is the help
            return error.exit_code
        command = error.ctx.command_path if error.ctx else "otel-straggler"
        return _print_error(f"{_usage_message(error)} Run '{command} --help' for what is accepted.")
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except OSError as error:  # input errors have their own class: this is output to a full disk
        _discard_output()
        where = error.filename or "output"
        return _print_error(
            f"{where}: {error.strerror or error}. Is there room, and may you write there?"
        )
    return answer if isinstance(answer, int) else 0


def _usage_message(error: click.UsageError) -> str:
    """The message, with the verb that the user probably meant: click does not suggest lazy ones."""
    reported = error.format_message().rstrip(".")
    unknown = re.fullmatch(r"No such command '(.+)'", reported)
    listing = getattr(error.ctx.command if error.ctx else None, "list_commands", None)
    near = get_close_matches(unknown[1], listing(error.ctx), 1) if unknown and listing else []
    if near:
        reported = f"{reported}. Did you mean '{near[0]}'?"
    return reported if reported.endswith("?") else f"{reported}."


def _print_error(message: str, exit_code: int = MISSING_EXTRA) -> int:
    lines = map(visible, message.split("\n"))
    print("otel-straggler: error: " + "\n".join(lines), file=sys.stderr)
    return exit_code


def _tolerate_any_name() -> None:
    """Print ``?`` for letters that the terminal's encoding lacks."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _discard_output() -> None:
    """Redirect output that cannot be written, so that the interpreter does not try again at
    exit."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
