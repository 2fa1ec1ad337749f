"""``otel-straggler deploy``: configuration of what runs around the collectors, as files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click

from otel_straggler.cli.otelcol_files import MAX_SHARDS, Fleet, write_files
from otel_straggler.errors import ConfigError

_NAMES = ("otelcol", "otelcol-contrib", "otelcol-k8s")
_VALIDATE_S = 60.0


@click.group()
def command() -> None:
    """Configuration of what runs around the collectors, as files."""


@command.command(
    short_help="Write OpenTelemetry Collector configurations: agents, gateway, shards."
)
@click.option("--shards", type=int, required=True, help=f"Collectors behind it, 1 to {MAX_SHARDS}.")
@click.option("-o", "--output", default="otelcol", show_default=True, type=click.Path(
    path_type=Path, file_okay=False), help="Folder for agent.yaml and gateway.yaml.")  # fmt: skip
@click.option("--shard-url", default=Fleet.shard_url, show_default=True,
    help="OTLP/HTTP address of a shard; {n} is its number, from 0.")  # fmt: skip
@click.option("--gateway-url", default=Fleet.gateway_url, show_default=True,
    help="OTLP/gRPC address at which agents reach the gateway.")  # fmt: skip
@click.option("--queue-dir", default=Fleet.queue_dir, show_default=True,
    help="Folder on a disk for what waits, of agents and gateway each.")  # fmt: skip
@click.option("--run-key", "run_keys", multiple=True, metavar="KEY",
    help="As attributes.run_id of the collectors: read before built-in keys.")  # fmt: skip
@click.option("--shard-token-env", default="", metavar="NAME",
    help="Environment variable of the gateway with the token that shards ask for.")  # fmt: skip
@click.option("--gateway-token-env", default="", metavar="NAME",
    help="The same of agents and gateway, which then asks agents for it.")  # fmt: skip
@click.option("--shard-ca-file", default="", metavar="FILE",
    help="CA certificate of the shards, on the gateway.")  # fmt: skip
@click.option("--gateway-ca-file", default="", metavar="FILE",
    help="CA certificate of the gateway, on the nodes.")  # fmt: skip
@click.option("--gateway-cert-file", default="", metavar="FILE",
    help="Certificate with which the gateway serves TLS.")  # fmt: skip
@click.option("--gateway-key-file", default="", metavar="FILE", help="Its key.")
@click.option("--otelcol", metavar="PROGRAM",
    help=f"Validates the files.  [default: {' or '.join(_NAMES)} on PATH, if any]")  # fmt: skip
def otelcol(
    shards: int,
    output: Path,
    shard_url: str,
    gateway_url: str,
    queue_dir: str,
    run_keys: tuple[str, ...],
    otelcol: str | None,
    **access: str,
) -> None:
    """Write and check configurations of stock Collectors in front of several collectors.

    An agent on every node sends to a gateway, which sends each run as a whole to one of the shards:
    a hash of the run's name chooses. Both keep what cannot be sent on disk. With one more shard,
    1/N of the runs move, all of them to the new one.
    """
    fleet = Fleet(
        shards=shards,
        shard_url=shard_url,
        gateway_url=gateway_url,
        queue_dir=queue_dir,
        run_keys=run_keys,
        **access,
    )
    files = write_files(fleet, output)
    program = otelcol or next(filter(None, map(shutil.which, _NAMES)), None)
    for file in files:
        if program is not None:
            _validate(program, file)
        click.echo(str(file))
    if program is None:
        click.echo("not validated: no otelcol on PATH; name one with --otelcol", err=True)


def _validate(program: str, file: Path) -> None:
    call = [program, "validate", "--config", str(file)]
    remedy = "Is it an OpenTelemetry Collector with the components that the file's head names?"
    try:
        done = subprocess.run(  # noqa: S603 - the program that the user names
            call, capture_output=True, text=True, timeout=_VALIDATE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        expected = "a program that validates the files"
        raise ConfigError.of("--otelcol", program, expected, f"{error}. {remedy}") from error
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()[-1000:]
        raise ConfigError.of(str(file), reason, f"a file that {program} accepts", remedy)
