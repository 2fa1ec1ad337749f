"""``otel-straggler supervise``: act on alerts and reports by a policy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from otel_straggler.cli.collector import serve_until, start_serving
from otel_straggler.cli.exchange import Server, base_url
from otel_straggler.cli.text import AS_JSON, clock, print_json, printable, user_name
from otel_straggler.errors import InputError

if TYPE_CHECKING:
    from otel_straggler.supervisor.settings import SupervisorSettings

DEFAULT_URL: Final = "http://127.0.0.1:9470"
_MAX_SHOWN: Final = 10
_EXPECTED, _REMEDY = "a supervisor", "Is it running, and is this its address?"
_log = logging.getLogger(__name__)
_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group(
    invoke_without_command=True,
    short_help="Act on alerts and reports by a policy: drain hosts, restart runs.",
)
@click.option("--config", metavar="FILE", help="YAML; docs/operate/supervisor.md has all settings.")
@click.option(
    "--check", is_flag=True, help="Check the settings and the files that they name, then exit."
)
@click.option(
    "--dry-run", is_flag=True,
    help="Print what the last 24 h of the journal would have led to under this policy, then exit.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, config: str | None, check: bool, dry_run: bool) -> None:
    """Take alerts of Alertmanager and reports of nodes, decide by a policy, act on hosts.

    Without a command, it serves. The first line on standard output, once the port is open, is a
    JSON object with the address. SIGTERM, SIGINT and SIGHUP end it after the step in progress.
    """
    if context.invoked_subcommand is not None:
        if config is not None or check or dry_run:
            raise click.UsageError("--config, --check and --dry-run are for no command.")
        return
    from otel_straggler.supervisor.service import Supervisor, executor_for
    from otel_straggler.supervisor.settings import check_policy, check_start, load_settings

    settings = load_settings(config)
    if check:
        check_start(settings)
        check_policy(settings, executor_for(settings).actions)
        click.echo("The supervisor would start with these settings.")
        return
    if dry_run:
        for line in dry_run_lines(settings):
            click.echo(line)
        return
    stop = start_serving()
    supervisor = Supervisor(settings)
    address = supervisor.start()
    _log.info("the executor is %s", settings.executor.kind)
    serve_until(stop, {"supervisor": address})
    supervisor.stop()


def dry_run_lines(settings: SupervisorSettings) -> list[str]:
    """What ``--dry-run`` prints."""
    from otel_straggler.supervisor.dry_run import dry_run

    lines = dry_run(settings.state.path, settings.policy, time.time())
    return [printable(line, 500) for line in lines]


def _to_supervisor(function: _Command) -> _Command:
    return click.option("--url", default=DEFAULT_URL, show_default=True, help="Of the supervisor.")(
        function
    )


@command.command()
@_to_supervisor
@AS_JSON
def status(url: str, as_json: bool) -> None:
    """Show whether it acts, the hosts, and the newest decisions."""
    answer = _ask(url, "/v1/status", "decisions")
    if as_json:
        print_json({"schema_version": 1, **answer})
        return
    _say(url, lambda: status_lines(answer))


@command.command()
@click.option("--reason", required=True, help="Stored and shown.")
@click.option("--by", help="Your name.  [default: your user name]")
@_to_supervisor
def stop(reason: str, by: str | None, url: str) -> None:
    """Stop it: no step begins until it is resumed, also after a restart."""
    body = {"reason": reason, "by": user_name() if by is None else by}
    stopped = _ask(url, "/v1/stop", "stopped", {k: v for k, v in body.items() if v})["stopped"]
    _say(url, lambda: [_stopped(stopped)])


@command.command()
@_to_supervisor
def resume(url: str) -> None:
    """Let it act again. Steps that were held begin, unless they are too old."""
    was_stopped = _ask(url, "/v1/resume", "was_stopped", {})["was_stopped"]
    click.echo("It acts again." if was_stopped else "It was not stopped.")


@command.command()
@click.argument("host")
@click.argument(
    "state", type=click.Choice(["spare", "running", "failed", "complete", "cordoned", "gone"])
)
@_to_supervisor
def mark(host: str, state: str, url: str) -> None:
    """Set the state of a host, such as that of a repaired one to spare.

    One that is gone is no longer in the fleet, of which shares are taken.
    """
    answer = _ask(url, "/v1/hosts", "state", {"name": host, "state": state})
    _say(url, lambda: [f"{printable(answer['name'])} is {answer['state']}."])


def _say(url: str, lines: Callable[[], Iterable[str]]) -> None:
    """Print what an answer says: no control character, and no traceback where values are missing or
    of other types."""
    try:
        said = [printable(line, 10_000) for line in lines()]
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, OSError):
        value = "an answer without the values of one"
        raise InputError.of(url, value, _EXPECTED, _REMEDY) from None
    for line in said:
        click.echo(line)


def status_lines(answer: dict[str, Any]) -> list[str]:
    """What ``status`` prints."""
    stopped = answer["stopped"]
    acting = f"It acts, with the executor {printable(answer['executor'])}."
    lines = [acting if stopped is None else _stopped(stopped), *_warnings(answer)]
    by_state: dict[str, list[str]] = {}
    for host in answer["hosts"]:
        by_state.setdefault(host["state"], []).append(printable(host["name"]))
    for state, names in sorted(by_state.items()):
        more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
        lines.append(f"{state}: {len(names)} ({', '.join(names[:_MAX_SHOWN])}{more})")
    lines += [_decision(each) for each in answer["decisions"][:_MAX_SHOWN]]
    return lines if answer["decisions"] else [*lines, "no decisions yet"]


def _warnings(answer: dict[str, Any]) -> list[str]:
    """What a person should know first. A supervisor of an earlier version says none of it."""
    lines = []
    if unknown := answer.get("unknown"):
        lines.append(
            f"It is not known which hosts are cordoned, as {printable(unknown['why'], 500)}. "
            "Name them: otel-straggler supervise mark HOST cordoned"
        )
    if error := answer.get("scheduler", {}).get("error"):
        lines.append(f"The scheduler does not list its hosts: {printable(error, 500)}")
    if waiting := answer.get("waiting"):
        lines.append(f"{waiting} actions wait")
    if shed := answer.get("shed"):
        lines.append(f"{shed} notifications were not made, as too many waited")
    if lost := [printable(h["name"]) for h in answer["hosts"] if not h.get("is_known", True)]:
        shown = ", ".join(lost[:_MAX_SHOWN])
        lines.append(
            f"{len(lost)} hosts are not in the scheduler's list, and count for nothing: {shown}"
        )
    return lines


def _decision(each: dict[str, Any]) -> str:
    subject = printable(each["host"] or each["run_id"] or "the fleet")
    what = f"{each['action']} of {subject}: {each['status']}"
    if each["action"] is None:
        what = f"nothing about {subject}: {each['reason']}"
    text = f". {printable(each['text'], 500)}" if each["text"] else ""
    return f"{clock(each['at_unix_s'])} {what}, because of {printable(each['cause'])}{text}"


def _stopped(stopped: dict[str, Any]) -> str:
    by, reason = printable(stopped["by"]), printable(stopped["reason"], 500)
    return f"It is stopped since {clock(stopped['at_unix_s'])} by {by}: {reason}"


def _ask(url: str, path: str, needed: str, body: Any = None) -> dict[str, Any]:
    """The supervisor's answer; raises InputError for any other program's."""
    server = Server(
        url=base_url(url, "--url", DEFAULT_URL),
        expected=_EXPECTED,
        remedy=_REMEDY,
        is_collector=True,
    )
    answer = server.ask(path, body)
    if not isinstance(answer, dict) or needed not in answer:
        value = f"JSON without {needed}"
        raise InputError.of(server.url + path, value, server.expected, server.remedy)
    return answer
