"""``otel-straggler maintenance``: hosts under maintenance, whose alerts notify nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click

from otel_straggler.cli.exchange import DEFAULT_COLLECTOR, Server, base_url
from otel_straggler.cli.fitting_table import seconds_of
from otel_straggler.cli.text import AS_JSON, clock, print_json, printable, user_name
from otel_straggler.collector.metrics.families import label
from otel_straggler.errors import InputError, StragglerError

_PATH = "/v1/maintenance"
_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group()
def command() -> None:
    """Put hosts under maintenance: alerts about them and their ranks end.

    A collector still scores them. A silence in Alertmanager (--alertmanager) covers all alerts that
    name the host.
    """


def _to_collectors(function: _Command) -> _Command:
    return click.option(
        "--collector",
        "collectors",
        multiple=True,
        default=(DEFAULT_COLLECTOR,),
        show_default=True,
        help="Its --metrics URL; repeatable.",
    )(function)


def _to_alertmanagers(what: str) -> Callable[[_Command], _Command]:
    return click.option("--alertmanager", "alertmanagers", multiple=True, metavar="URL", help=what)


@command.command()
@click.option("--node", required=True, help="As its alerts name it.")
@click.option("--for", "length", required=True, metavar="TIME", help="Such as 30m, 4h, 2d.")
@click.option("--reason", required=True, help="Stored and shown.")
@click.option("--by", help="Your name.  [default: your user name]")
@_to_collectors
@_to_alertmanagers("Silence the host there too; one of a cluster will do.")
def add(
    node: str,
    length: str,
    reason: str,
    by: str | None,
    collectors: tuple[str, ...],
    alertmanagers: tuple[str, ...],
) -> None:
    """Start maintenance of a host, or change its end."""
    seconds = seconds_of(length, "--for")
    by = user_name() if by is None else by
    asked = {"node": node, "seconds": seconds, "reason": reason, "by": by or None}

    def report(server: Server) -> str:
        until = clock(_ask(server, "until_ns", asked)["until_ns"] / 1e9)
        return f"{printable(node)} is under maintenance until {until} at {server.url}"

    def silence(alertmanager: Alertmanager) -> str:
        silence_id = alertmanager.silence(node, seconds, reason, by)
        return f"silence {printable(silence_id)} at {alertmanager.url}"

    _each(report, silence, collectors, alertmanagers)


@command.command()
@click.option("--node", required=True, help="As its alerts name it.")
@_to_collectors
@_to_alertmanagers("End our silences of the host there.")
def end(node: str, collectors: tuple[str, ...], alertmanagers: tuple[str, ...]) -> None:
    """End maintenance of a host."""

    def report(server: Server) -> str:
        asked = {"node": node, "until": 0, "by": user_name() or None}
        was = "is no longer" if _ask(server, "was_in_force", asked)["was_in_force"] else "was not"
        return f"{printable(node)} {was} under maintenance at {server.url}"

    def unsilence(alertmanager: Alertmanager) -> str:
        ended = ", ".join(map(printable, alertmanager.end(node))) or "none"
        return f"silences ended at {alertmanager.url}: {ended}"

    _each(report, unsilence, collectors, alertmanagers)


@command.command("list")
@_to_collectors
@AS_JSON
def list_(collectors: tuple[str, ...], as_json: bool) -> None:
    """List what is under maintenance, and until when."""
    if as_json:
        servers = map(_collector, collectors)
        result = {server.url: _ask(server, "maintenance")["maintenance"] for server in servers}
        print_json({"schema_version": 1, "collectors": result})
        return

    def lines(server: Server) -> str:
        hosts = list(map(_line, _ask(server, "maintenance")["maintenance"]))
        listed = hosts or ["no host is under maintenance"]
        return "\n".join([f"{server.url}:", *(f"  {line}" for line in listed)])

    _each(lines, lambda _: "", collectors, ())


def _each(
    notify_collector: Callable[[Server], str],
    notify_alertmanager: Callable[[Alertmanager], str],
    collectors: Sequence[str],
    alertmanagers: Sequence[str],
) -> None:
    """Tell all of them, and print each answer.

    Raises:
        StragglerError: the first that failed, once all have been tried.
    """
    acts = [partial(notify_collector, _collector(url)) for url in collectors]
    acts += [partial(notify_alertmanager, Alertmanager(url)) for url in alertmanagers]
    failed: list[StragglerError] = []
    for act in acts:
        try:
            click.echo(act())
        except StragglerError as error:
            failed.append(error)
    for another in failed[1:]:
        click.echo(f"otel-straggler: error: {another}", err=True)
    if failed:
        raise failed[0]


def _collector(url: str) -> Server:
    return Server(
        url=base_url(url, "--collector", DEFAULT_COLLECTOR),
        expected="a collector that accepts maintenance",
        remedy="Is it running, is this its --metrics address, or is metrics.decisions off?",
        is_collector=True,
    )


def _ask(server: Server, needed: str, body: Any = None) -> dict[str, Any]:
    """The collector's answer; raises InputError for any other program's."""
    answer = server.ask(_PATH, body)
    if not isinstance(answer, dict) or needed not in answer:
        value = f"JSON without {needed}"
        raise InputError.of(server.url + _PATH, value, server.expected, server.remedy)
    return answer


def _line(each: dict[str, Any]) -> str:
    by = f", {printable(each['by'])}" if each["by"] else ""
    until = clock(each["until_ns"] / 1e9)
    return f"{printable(each['node'])} until {until}{by}: {printable(each['reason'], 500)}"


_MARK: Final = "otel-straggler maintenance: "
"""Prefix of the comment of our silences; others are left alone."""
_EXAMPLE: Final = "http://127.0.0.1:9093"
_IN_FORCE: Final = frozenset({"active", "pending"})


class Alertmanager:
    """One server, or one of a cluster, which share silences."""

    def __init__(self, url: str) -> None:
        self.url = base_url(url, "--alertmanager", _EXAMPLE)
        self._server = Server(
            url=self.url,
            expected="an Alertmanager with its v2 API",
            remedy="Is it running, and is this its address, with its path if it has one?",
        )

    def silence(self, node: str, seconds: float, reason: str, by: str) -> str:
        """Silence all alerts of a node; returns the id of the silence."""
        now_s = time.time()
        answer = self._server.ask(
            "/api/v2/silences",
            {
                "matchers": [_matcher(node)],
                "startsAt": _silence_time(now_s),
                "endsAt": _silence_time(now_s + seconds),
                "createdBy": by or "otel-straggler",
                "comment": _MARK + reason,
            },
        )
        if not isinstance(answer, dict) or not isinstance(answer.get("silenceID"), str):
            raise self._foreign(answer)
        return str(answer["silenceID"])

    def end(self, node: str) -> list[str]:
        """End our silences of a node; returns their ids."""
        asked = quote(label("node", node), safe="")
        answer = self._server.ask(f"/api/v2/silences?filter={asked}")
        if not isinstance(answer, list):
            raise self._foreign(answer)
        ended = list(_made_for(answer, node))
        for silence_id in ended:
            self._server.ask(f"/api/v2/silence/{quote(silence_id, safe='')}", method="DELETE")
        return ended

    def _foreign(self, answer: Any) -> InputError:
        expected = "an answer of Alertmanager's v2 API"
        remedy = "Is another program listening there?"
        return InputError.of(self.url, str(answer)[:100], expected, remedy)


def _made_for(silences: list[Any], node: str) -> Iterator[str]:
    for each in silences:
        if (
            each.get("status", {}).get("state") in _IN_FORCE
            and each.get("matchers") == [_matcher(node)]
            and str(each.get("comment", "")).startswith(_MARK)
        ):
            yield str(each["id"])


def _matcher(node: str) -> dict[str, Any]:
    return {"name": "node", "value": node, "isRegex": False, "isEqual": True}


def _silence_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat()
