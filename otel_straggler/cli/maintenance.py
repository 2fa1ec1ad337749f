"""``otel-straggler maintenance``: hosts under maintenance, whose alerts notify nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
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
    """Say which hosts are being worked on: nobody is called because their ranks are lost or stuck.

    A collector goes on scoring them. A silence in Alertmanager (--alertmanager) covers all alerts
    that name the host.
    """


def _to_collectors(function: _Command) -> _Command:
    return click.option(
        "--collector",
        "collectors",
        multiple=True,
        default=(DEFAULT_COLLECTOR,),
        show_default=True,
        help="Its --metrics URL; several may be named.",
    )(function)


def _to_alertmanagers(what: str) -> Callable[[_Command], _Command]:
    return click.option("--alertmanager", "alertmanagers", multiple=True, metavar="URL", help=what)


@command.command()
@click.option("--node", required=True, help="As its alerts name it.")
@click.option("--for", "length", required=True, metavar="TIME", help="Such as 30m, 4h, 2d.")
@click.option("--reason", required=True, help="Why; it is kept and shown.")
@click.option("--by", help="Who says so.  [default: your user name]")
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
    """Begin maintenance of a host, or change its end."""
    seconds = seconds_of(length, "--for")
    by = user_name() if by is None else by
    servers = [_collector(url) for url in collectors]
    silencing = [Alertmanager(url) for url in alertmanagers]
    asked = {"node": node, "seconds": seconds, "reason": reason, "by": by or None}

    def report(server: Server) -> str:
        reported = _read(server, server.ask(_PATH, asked), "until_ns")
        until = clock(reported["until_ns"] / 1e9)
        return f"{printable(node)} is under maintenance until {until} at {server.url}"

    def silence(alertmanager: Alertmanager) -> str:
        silence_id = alertmanager.silence(node, seconds, reason, by)
        return f"silence {printable(silence_id)} at {alertmanager.url}"

    _each([*(partial(report, s) for s in servers), *(partial(silence, a) for a in silencing)])


@command.command()
@click.option("--node", required=True, help="As its alerts name it.")
@_to_collectors
@_to_alertmanagers("End there what maintenance has silenced.")
def end(node: str, collectors: tuple[str, ...], alertmanagers: tuple[str, ...]) -> None:
    """End maintenance of a host."""
    servers = [_collector(url) for url in collectors]
    silencing = [Alertmanager(url) for url in alertmanagers]

    def report(server: Server) -> str:
        reported = _read(
            server,
            server.ask(_PATH, {"node": node, "until": 0, "by": user_name() or None}),
            "was_in_force",
        )
        was = "is no longer" if reported["was_in_force"] else "was not"
        return f"{printable(node)} {was} under maintenance at {server.url}"

    def unsilence(alertmanager: Alertmanager) -> str:
        ended = alertmanager.end(node)
        text = ", ".join(map(printable, ended)) if ended else "none"
        return f"silences ended at {alertmanager.url}: {text}"

    _each([*(partial(report, s) for s in servers), *(partial(unsilence, a) for a in silencing)])


@command.command("list")
@_to_collectors
@AS_JSON
def list_(collectors: tuple[str, ...], as_json: bool) -> None:
    """List what is under maintenance, and until when."""
    servers = [_collector(url) for url in collectors]
    if as_json:
        result = {server.url: _listed(server) for server in servers}
        print_json({"schema_version": 1, "collectors": result})
        return

    def lines(server: Server) -> str:
        known = _listed(server)
        reported = [_line(each) for each in known] or ["no host is under maintenance"]
        return "\n".join([f"{server.url}:", *(f"  {line}" for line in reported)])

    _each([partial(lines, server) for server in servers])


def _each(acts: Iterable[Callable[[], str]]) -> None:
    """Do all, and print what each returns.

    Raises:
        StragglerError: the first that failed, once all have been tried.
    """
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
        expected="a collector that takes maintenance there",
        remedy="Is it running, is this its --metrics address, or is metrics.decisions off?",
    )


def _listed(server: Server) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = _read(server, server.ask(_PATH), "maintenance")["maintenance"]
    return result


def _read(server: Server, answer: Any, needed: str) -> dict[str, Any]:
    """The collector's answer; raises InputError for any other program's."""
    if not isinstance(answer, dict) or needed not in answer:
        where, value = server.url + _PATH, f"JSON without {needed}"
        raise InputError.of(where, value, server.expected, server.remedy)
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
        result: str = answer["silenceID"]
        return result

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
        return InputError.of(
            self.url,
            str(answer)[:100],
            "an answer of Alertmanager's v2 API",
            "Is another program listening there?",
        )


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
