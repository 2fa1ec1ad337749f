"""What commands print for people about the recorded runs, on the clock of the collector.

python -m tests.golden.texts FOLDER RECORDS METRICS_URL
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from . import clocked

OF_A_COLLECTOR = {
    "top": ("--once", "--run", "slow_gpu"),
    "top of a hang": ("--once", "--run", "lost"),
    "report": ("slow_gpu",),
    "report of a hang": ("stuck",),
    "report of a group": ("groups", "--group", "actors"),
    "report of an imbalance": ("imbalance",),
    "verdict explain": ("5", "--run", "slow_gpu"),
    "maintenance list": (),
}
OF_A_HISTORY = {"history": (), "history of a run": ("--run", "slow_gpu")}
OF_A_FILE = {
    "score": ("healthy",),
    "score of a slow rank": ("slow_gpu", "--window-steps", "20"),
    "score of kernels": ("gpu_times",),
    "score of an imbalance": ("imbalance",),
    "score of a crash": ("lost",),
    "replay": ("slow_gpu", "--would-have-paged"),
}
COMMANDS = (*OF_A_COLLECTOR, *OF_A_HISTORY, *OF_A_FILE, "help")
"""By the name of what is held; the command comes before " of "."""


def arguments_of(name: str, folder: Path, records: Path, url: str) -> list[str]:
    command = name.partition(" of ")[0].split()
    if name in OF_A_COLLECTOR:
        return [*command, *OF_A_COLLECTOR[name], "--collector", url]
    if name in OF_A_HISTORY:
        return [*command, str(folder / "history.db"), *OF_A_HISTORY[name]]
    run, *options = OF_A_FILE[name]
    return [*command, str(records / f"{run}.otlp"), *options]


def helps() -> Iterator[str]:
    """Of every command, its sub-commands after it."""
    import click

    from otel_straggler.cli.group import otel_straggler

    def walk(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
        context = click.Context(command, parent, name, terminal_width=100)
        yield f"$ {context.command_path} --help\n{command.get_help(context)}\n\n"
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                result = command.get_command(context, each)
                assert result is not None, each
                yield from walk(result, each, context)

    yield from walk(otel_straggler, "otel-straggler", None)


def main(folder: Path, records: Path, url: str) -> None:
    clocked.install(clocked.Clock(folder / "clock"))
    os.environ["COLUMNS"] = "120"
    from otel_straggler.cli import main as command

    for name in COMMANDS:
        output = io.StringIO()
        if name == "help":
            output.write("".join(helps()))
        else:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                code = command(arguments_of(name, folder, records, url))
            assert code == 0, (name, output.getvalue())
        text = output.getvalue().replace(str(folder), "FOLDER").replace(str(records), "RECORDS")
        text = re.sub(r" +\n", "\n", text.replace(url, "http://COLLECTOR"))
        if name in OF_A_HISTORY:  # which is written some time later
            text = re.sub(r"\d{4}-\d\d-\d\d [\d:]+ UTC", "TIME", text)
        (folder / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
