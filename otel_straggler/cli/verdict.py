"""``otel-straggler verdict``: explain a verdict; dismiss or mute it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import click

from otel_straggler.cli.exchange import (
    DEFAULT_COLLECTOR,
    Server,
    collector_url,
    fetch_report,
    known_run,
)
from otel_straggler.cli.explanation import DECIDED, explanation
from otel_straggler.cli.fitting_table import seconds_of
from otel_straggler.cli.hang_explanation import HangExplanation
from otel_straggler.cli.liveness_lines import is_over
from otel_straggler.cli.report_source import LiveRunViews
from otel_straggler.cli.text import AS_JSON, Json, printable, rank_key, report_console, user_name
from otel_straggler.detect.hangs.states import HANGS
from otel_straggler.errors import ConfigError
from otel_straggler.model.verdict import hang_subject, hung_group

_HANG = "hang"
"""A subject: whichever group of a run hangs."""
_Command = TypeVar("_Command", bound=Callable[..., None])


@click.group()
def command() -> None:
    """Explain a verdict; dismiss or mute it.

    SUBJECT is the subject_id of the report, such as rank/node-1/1, or the number of a rank or the
    name of a host that matches one verdict only, or one only of a run that is not over. "hang", or
    "hang:GROUP", is a run that is stuck or lost.
    """


def _about_one(function: _Command) -> _Command:
    for decorate in (
        click.option(
            "--collector", default=DEFAULT_COLLECTOR, show_default=True, help="Its --metrics URL."
        ),
        click.option("--run", "run_id", metavar="ID", help="The run, if there are several."),
        click.argument("subject"),
    ):
        function = decorate(function)
    return function


@command.command(short_help="Show the numbers that a verdict rests on.")
@_about_one
@AS_JSON
def explain(subject: str, run_id: str | None, collector: str, as_json: bool) -> None:
    """Show the numbers that a verdict rests on: of the subject and of its peers; of a hang, who is
    waited for, where, and since when."""
    url = collector_url(collector)
    report = fetch_report(url)
    known_run(report, run_id, url)
    if subject == _HANG or hung_group(subject) is not None:
        run_id, group = _result_hang(report, subject, run_id, or_past=True)
        _explain_hang(LiveRunViews(url).run_view(run_id, group), as_json=as_json)
        return
    run_id, run, verdict = _result(report, subject, run_id, or_newest=True)
    reported = explanation(run_id, run, verdict)
    if as_json:
        click.echo(json.dumps(reported.as_json()))
    else:
        report_console().print(reported)


def _explain_hang(run_view: Json, *, as_json: bool) -> None:
    explained = HangExplanation(run_view)
    if as_json:
        click.echo(json.dumps(explained.as_json()))
    else:
        report_console().print(explained)


@command.command(short_help="It is wrong: do not page for it until it is confirmed again.")
@_about_one
@click.option("--reason", required=True, help="Stored and shown.")
def dismiss(subject: str, run_id: str | None, collector: str, reason: str) -> None:
    """It is wrong: do not page for it until the subject recovers and is confirmed slow again."""
    _decide("dismiss", subject, run_id, collector, reason)


@command.command(short_help="Not now: do not page for it for some time.")
@_about_one
@click.option("--for", "length", required=True, metavar="TIME", help="Such as 90m, 8h, 2d.")
@click.option("--reason", required=True, help="Stored and shown.")
def mute(subject: str, run_id: str | None, collector: str, length: str, reason: str) -> None:
    """Not now: do not page for the subject for some time, whatever it does."""
    _decide("mute", subject, run_id, collector, reason, seconds=seconds_of(length, "--for"))


@command.command()
@_about_one
@click.option("--reason", required=True, help="Stored and shown.")
def restore(subject: str, run_id: str | None, collector: str, reason: str) -> None:
    """Undo dismiss or mute."""
    _decide("restore", subject, run_id, collector, reason)


def _decide(
    action: str, subject: str, run_id: str | None, collector: str, reason: str, **more: float
) -> None:
    url = collector_url(collector)
    report = fetch_report(url)
    known_run(report, run_id, url)
    if subject == _HANG or hung_group(subject) is not None:
        run_id, group = _result_hang(report, subject, run_id)
        subject_id = hang_subject(group)
    else:
        run_id, _, verdict = _result(report, subject, run_id)
        subject_id = verdict["subject_id"]
    asked = {
        "action": action,
        "run_id": run_id,
        "subject_id": subject_id,
        "reason": reason,
        "by": user_name(),
        **more,
    }
    server = Server(
        url=url,
        expected="a collector that accepts decisions",
        remedy="Is it an older one, or is metrics.decisions off?",
        is_collector=True,
    )
    server.ask("/v1/decisions", asked)
    click.echo(f"{DECIDED[action]}: {printable(subject_id)} in run {printable(run_id)}")


def _result(
    report: Json, subject: str, run_id: str | None, *, or_newest: bool = False
) -> tuple[str, Json, Json]:
    """Run and newest verdict of a subject, preferably of a run that is not over.

    Args:
        or_newest: if all matching runs are over, take the verdict that changed last.

    Raises:
        ConfigError: there is none, or more than one.
    """
    runs = report["runs"] if run_id is None else {run_id: report["runs"][run_id]}
    result = [
        (name, run, verdict)
        for name, run in runs.items()
        for verdict in {v["subject_id"]: v for v in run.get("verdicts", ())}.values()
        if _fits(verdict, subject)
    ]
    exact = [one for one in result if one[2]["subject_id"] == subject]
    result = exact or result
    likely = [one for one in result if not is_over(one[1], one[2]["group"])]
    if or_newest and not likely and len({name for name, _, _ in result}) == len(result) > 1:
        likely = [max(result, key=lambda one: one[2]["at_ns"] or 0)]
    if len(likely or result) == 1:
        return (likely or result)[0]
    known = result or [(n, r, v) for n, r in runs.items() for v in r.get("verdicts", ())]
    names = dict.fromkeys(f"{v['subject_id']} (run {n})" for n, _, v in known)
    some = ", ".join(printable(name, 120) for name in list(names)[:10])
    expected = f"one of: {some}" if some else "a verdict; there is none"
    remedy = "Name one of them, and its --run." if some else "See 'otel-straggler top'."
    raise ConfigError.of("SUBJECT", subject, expected, remedy)


def _result_hang(
    report: Json, subject: str, run_id: str | None, *, or_past: bool = False
) -> tuple[str, str]:
    """Run and group of a hang; a named group need not hang.

    Args:
        or_past: if none hangs now, one that has hung before.

    Raises:
        ConfigError: there is none, or more than one.
    """
    group = hung_group(subject)
    runs = report["runs"] if run_id is None else {run_id: report["runs"][run_id]}
    known = [(name, world) for name, run in runs.items() for world in run.get("liveness", ())]
    hung = [(name, world) for name, world in known if world["state"] in HANGS]
    if not hung and or_past:
        hung = [(name, world) for name, world in known if world.get("earlier")]
    result = [one for one in (hung if group is None else known) if group in (None, one[1]["group"])]
    if len(result) == 1:
        return result[0][0], result[0][1]["group"]
    names = [f"{hang_subject(world['group'])} (run {name})" for name, world in hung or known]
    some = ", ".join(printable(name, 120) for name in names[:10])
    expected, remedy = f"one of: {some}", "Name one of them, and its --run."
    if not hung:
        expected, remedy = "a run that is stuck or lost", "None is; see 'liveness' in /v1/report."
    raise ConfigError.of("SUBJECT", subject, expected, remedy)


def _fits(verdict: Json, subject: str) -> bool:
    if subject == verdict["subject_id"]:
        return True
    if verdict["scope"] == "rank":
        return subject == rank_key(verdict)
    return bool(verdict["scope"] == "host" and subject == verdict["node"])
