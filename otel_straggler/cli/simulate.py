"""``otel-straggler simulate``: telemetry of a run whose slow rank is known."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from otel_straggler.errors import InputError, UnavailableError, describe
from otel_straggler.simulate.scenarios import NEW_YEAR_2026_NS, SCENARIOS, Plan, Scenario, simulate
from otel_straggler.simulate.writers import as_json_line, encode_requests, frame, write_csv
from otel_straggler.transport.http import HttpClient

_DEFAULT = Plan()


@click.command(short_help="Write or send the telemetry of a run whose slow rank is known.")
@click.option(
    "--scenario", type=click.Choice(list(SCENARIOS)), default="one_slow_rank", show_default=True
)
@click.option("--ranks", default=_DEFAULT.ranks, show_default=True, help="Ranks of the run.")
@click.option("--steps", default=_DEFAULT.steps, show_default=True, help="Optimizer steps.")
@click.option(
    "--ranks-per-node", default=_DEFAULT.ranks_per_node, show_default=True, help="Ranks on a node."
)
@click.option(
    "--slow-rank", type=int, help="Rank that is slow or missing.  [default: 5, or the last rank]"
)
@click.option("--section", default=_DEFAULT.section, show_default=True, help="Where it is slow.")
@click.option(
    "--slowdown", default=_DEFAULT.slowdown, show_default=True, help="Its time / the usual time."
)
@click.option("--onset-step", default=0, show_default=True, help="First slow step.")
@click.option("--noise", default=_DEFAULT.noise, show_default=True, help="Noise of every time.")
@click.option("--seed", default=0, show_default=True, help="Of the random numbers.")
@click.option("--run-id", default=_DEFAULT.run_id, show_default=True, help="Name of the run.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "otlp-json", "otlp-proto"]),
    default="csv",
    show_default=True,
    help="otlp-* as the OpenTelemetry Collector's file exporter writes them.",
)
@click.option("-o", "--output", default="-", show_default=True, help="File to write; - is stdout.")
@click.option("--send", metavar="URL", help="Send OTLP/HTTP to this collector instead of writing.")
def command(
    scenario: str,
    form: str,
    output: str,
    send: str | None,
    slow_rank: int | None,
    **numbers: object,
) -> None:
    """Write or send the telemetry of a run whose slow rank is known.

    otel-straggler simulate --ranks 8 --slow-rank 5 | otel-straggler score -
    """
    ranks = int(str(numbers["ranks"]))
    chosen = min(_DEFAULT.slow_rank, max(ranks - 1, 0)) if slow_rank is None else slow_rank
    start_ns = time.time_ns() if send else NEW_YEAR_2026_NS
    plan = Plan(slow_rank=chosen, start_ns=start_ns, **numbers)  # type: ignore[arg-type]
    run = simulate(scenario, plan)
    if send:
        click.echo(f"{_send(run, send)} spans sent to {send}, run {plan.run_id}", err=True)
        return
    with _opened(output) as file:
        for piece in _pieces(run, form):
            file.write(piece)


def _pieces(run: Scenario, form: str) -> Iterator[bytes]:
    if form == "csv":
        yield from (text.encode() for text in write_csv(run.batch))
    elif form == "otlp-json":
        yield from (as_json_line(request).encode() for request in encode_requests(run.batch))
    else:
        yield from map(frame, encode_requests(run.batch))


@contextlib.contextmanager
def _opened(output: str) -> Iterator[BinaryIO]:
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with Path(output).open("wb") as file:
            yield file
    except OSError as error:
        expected = "a file that can be written"
        remedy = f"{error.strerror}."
        raise InputError(
            describe(where="--output", value=output, expected=expected, remedy=remedy)
        ) from error


def _send(run: Scenario, url: str) -> int:
    if not url.startswith(("http://", "https://")):
        expected = "a URL such as http://127.0.0.1:4318"
        raise click.BadParameter(f"got {url!r}; expected {expected}", param_hint="--send")
    target = url.rstrip("/")
    client = HttpClient(target if target.endswith("/v1/traces") else f"{target}/v1/traces")
    for request in encode_requests(run.batch):
        answer = client.post(request, content_type="application/x-protobuf")
        if not answer.is_success:
            what = answer.error or f"HTTP {answer.status}: {answer.body[:200]!r}"
            remedy = "Is a collector running there?"
            raise UnavailableError(
                describe(where=client.url, value=what, expected="HTTP 200", remedy=remedy)
            )
    client.close()
    return len(run.batch)
