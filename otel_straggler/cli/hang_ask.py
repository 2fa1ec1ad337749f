"""``otel-straggler hang ask``: have a collector ask ranks for their stacks."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import click

from otel_straggler import semconv
from otel_straggler.cli.report_table import printable
from otel_straggler.cli.top import DEFAULT_COLLECTOR, TIMEOUT_S, report_url
from otel_straggler.collector.commands_settings import TOKEN_VARIABLE
from otel_straggler.errors import ConfigError, InputError, UnavailableError, describe
from otel_straggler.publish.hang_json import ranks_text

_POLL_S = 0.5
_MOST_IDS = 50
"""Asked about in one request; an id takes 17 characters of the 8 KiB that its line may have."""
_SAID = {
    "done": "has done it",
    "failed": "could not; its log says why",
    "refused": "refused: OTEL_STRAGGLER_EVIDENCE_DIR is not set there",
    "expired": "did not fetch it in time",
    "waiting": "has not answered: commands are off there, or it holds the GIL or is stopped "
    "(try 'otel-straggler hang stacks' on its host)",
}


@click.command(short_help="Have a collector ask ranks for their stacks.")
@click.option(
    "--collector", default=DEFAULT_COLLECTOR, show_default=True, help="Its --metrics URL."
)
@click.option("--run", "run_id", metavar="ID", required=True, help="Of which run.")
@click.option("--group", default="", metavar="NAME", help="Of which of its groups.")
@click.option("--rank", "ranks", type=int, multiple=True, help="Several may be given; all if none.")
@click.option("--wait", "wait_s", type=float, default=30.0, show_default=True, metavar="S",
              help="For the answers; 0: not at all.")  # fmt: skip
@click.argument("verb", type=click.Choice(semconv.VERBS))
def ask(
    collector: str, run_id: str, group: str, ranks: tuple[int, ...], wait_s: float, verb: str
) -> None:
    """Ask ranks through their collector; both sides must allow it.

    The collector's token is taken from OTEL_STRAGGLER_COMMANDS_TOKEN. Ranks answer with their next
    heartbeat and write to their own OTEL_STRAGGLER_EVIDENCE_DIR.
    """
    url = report_url(collector).removesuffix("/v1/report") + semconv.COMMANDS_PATH
    asked: dict[str, Any] = {"verb": verb, "run": run_id, "group": group}
    if ranks:
        asked["ranks"] = list(ranks)
    told = _fetched(url, json.dumps(asked).encode())
    rank_of = {str(one["id"]): int(one["rank"]) for one in told["commands"]}
    click.echo(f"Asked {ranks_text(list(rank_of.values()))} of run {printable(run_id)}: {verb}.")
    if wait_s > 0:
        _say(_outcomes(url, rank_of, wait_s), rank_of)


def _outcomes(url: str, rank_of: Mapping[str, int], wait_s: float) -> dict[str, str]:
    ends_at_s = time.monotonic() + wait_s
    outcomes = dict.fromkeys(rank_of, "waiting")
    while True:
        open_ids = [id_ for id_, outcome in outcomes.items() if outcome == "waiting"]
        for first in range(0, len(open_ids), _MOST_IDS):
            query = urlencode({"ids": ",".join(open_ids[first : first + _MOST_IDS])})
            outcomes.update(_fetched(f"{url}?{query}")["outcomes"])
        if "waiting" not in outcomes.values() or time.monotonic() >= ends_at_s:
            return outcomes
        time.sleep(_POLL_S)


def _say(outcomes: Mapping[str, str], rank_of: Mapping[str, int]) -> None:
    for outcome in Counter(outcomes.values()):
        who = ranks_text([rank_of[id_] for id_, one in outcomes.items() if one == outcome])
        click.echo(f"{who[0].upper()}{who[1:]}: {_SAID.get(outcome, outcome)}.")


def _fetched(url: str, body: bytes | None = None) -> dict[str, Any]:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    headers = {"Content-Type": "application/json"}
    if token:
        headers[semconv.COMMANDS_TOKEN_HEADER] = token
    request = urllib.request.Request(url, body, headers)  # noqa: S310 (checked by report_url)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            told: dict[str, Any] = json.load(answer)
            return told
    except urllib.error.HTTPError as error:
        raise _refused(url, error) from error
    except (OSError, ValueError) as error:
        raise UnavailableError(
            describe(
                where=url, value=str(error), expected="an answer", remedy="Is it still running?"
            )
        ) from error


def _refused(url: str, error: urllib.error.HTTPError) -> InputError | ConfigError:
    if error.code in {401, 403}:
        return ConfigError(
            describe(
                where=TOKEN_VARIABLE,
                value="nothing" if error.code == 401 else "...",
                expected="the collector's commands.token",
                remedy="Set it in this shell.",
            )
        )
    try:
        said = str(json.loads(error.read())["error"])
    except (OSError, ValueError, TypeError, KeyError):
        said = ""
    if error.code == 400 and said:
        return InputError(printable(said, 1_000))
    return InputError(
        describe(
            where=url,
            value=f"HTTP {error.code}",
            expected="a collector that takes commands there",
            remedy="Set commands.enabled in its file.",
        )
    )
