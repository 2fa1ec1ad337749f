"""The verbs, and how they are found: a verb is loaded when it is called, not before."""

from __future__ import annotations

from importlib import import_module

import click

from otel_straggler._version import __version__

VERBS = {
    "alerts": "Render alert rules, check them, read the runbook.",
    "collector": "Receive OTLP from every rank, score it, serve metrics and reports.",
    "dashboards": "Write pages for Grafana, or draw them without it.",
    "demo": "Let a rank go wrong, and see the alert arrive.",
    "doctor": "Say what stands between a training process and its scores.",
    "hang": "Say which ranks did not join which collective, and what they did.",
    "history": "List what a collector has kept: runs, windows, verdicts.",
    "maintenance": "Say which hosts are being worked on, so that nobody is called.",
    "replay": "Say what settings would have done on what was recorded.",
    "report": "Show a run, or keep it as one HTML file that opens offline.",
    "score": "Score a recorded run: CSV, OTLP-JSON lines or OTLP protobuf.",
    "simulate": "Write or send the telemetry of a run whose slow rank is known.",
    "top": "Watch the scores of a running collector in the terminal.",
    "verdict": "Say what a verdict rests on; dismiss or mute it.",
}


class LazyGroup(click.Group):
    """Each verb lives in ``otel_straggler/cli/<verb>.py`` as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(VERBS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"otel_straggler.cli.{cmd_name}").command
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="otel-straggler")
def otel_straggler() -> None:
    """Find the slow rank, and the silent one, in a distributed PyTorch job."""
