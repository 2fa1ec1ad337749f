"""``otel-straggler alerts``: rules for Prometheus and Alertmanager, checks, and a test alert."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import click

from otel_straggler.alerts.catalogue import NAMES
from otel_straggler.alerts.checking import (
    findings_in_config,
    findings_in_rules,
    findings_of_program,
    read_file,
)
from otel_straggler.alerts.render import PARTS, chapter, render_all
from otel_straggler.alerts.settings import AlertSettings, parse_settings
from otel_straggler.cli.exchange import DEFAULT_COLLECTOR, collector_url
from otel_straggler.cli.fitting_table import seconds_of
from otel_straggler.cli.text import AS_JSON, Json, printable
from otel_straggler.collector.alerting.alert_json import rfc3339
from otel_straggler.collector.alerting.posting import Access, NotifySettings, answer_of, tried_once
from otel_straggler.collector.alerting.trial import (
    MAX_TRIAL_S,
    TRIAL,
    Destination,
    trial_alert,
    try_alertmanagers,
    try_webhook,
)
from otel_straggler.collector.settings_file import check_notify
from otel_straggler.errors import ConfigError, InputError, UnavailableError, UsageError
from otel_straggler.model.alert import Alert, Severity
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.otlp.clients.token import TOKEN_REMEDY, token_headers
from otel_straggler.setting import rows_of
from otel_straggler.strict_json import parse_json

_SET = click.option(
    "--set", "values", multiple=True, metavar="NAME=VALUE", help="Another threshold; repeatable."
)


@click.group()
def command() -> None:
    """Render alert rules for Prometheus and Alertmanager, check them, read the runbook."""


@command.command(short_help="Write rules, an example for Alertmanager, templates, the runbook.")
@_SET
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write files there.",
)
@click.option("--only", type=click.Choice(list(PARTS)), help="Only this part.")
def render(values: tuple[str, ...], folder: Path | None, only: str | None) -> None:
    """Write rules, recording rules, an example for Alertmanager, templates and the runbook.

    Without --out the one file that --only names is printed. Thresholds are listed in
    docs/operate/alerts.md.
    """
    settings = parse_settings(values)
    rendered = PARTS[only](settings) if only else render_all(settings)
    if folder is not None:
        _write(rendered, folder)
    elif only is None:
        raise UsageError.of(
            "alerts render",
            "no --out and no --only",
            "a folder for all files, or one part to print",
            f"Give --out DIR, or --only {'|'.join(PARTS)}.",
        )
    else:
        click.echo(next(iter(rendered.values())), nl=False)


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@_SET
def export(folder: Path, values: tuple[str, ...]) -> None:
    """Write all of it into DIR; the same as render --out DIR."""
    _write(render_all(parse_settings(values)), folder)


def _write(rendered: dict[str, str], folder: Path) -> None:
    for name, text in rendered.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        click.echo(str(file))


@command.command(short_help="Find errors in files of rules and configurations.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def check(files: tuple[Path, ...]) -> int:
    """Find errors in FILES: rules for Prometheus, configurations of Alertmanager.

    Checks PromQL, metrics and labels (with the package promql-parser), and runs promtool and amtool
    if they are installed. The exit code is 1 if anything is wrong.
    """
    if not files:
        remedy = "For example alerts/otel-straggler-rules.yaml."
        raise UsageError.of("alerts check", "no file", "at least one", remedy)
    return max(_check(file) for file in files)


def _check(file: Path) -> int:
    document = read_file(file)
    is_rules = "groups" in document
    result = findings_in_config(document) if not is_rules else []
    if is_rules and find_spec("promql_parser") is None:
        click.echo(f"{file}: PromQL is not checked: pip install promql-parser", err=True)
    elif is_rules:
        result += findings_in_rules(document)
    text = findings_of_program(file, document)
    if text is None:
        program = "promtool" if is_rules else "amtool"
        click.echo(f"{file}: {program} is not installed, so it was not run", err=True)
    result += text or []
    for finding in result:
        click.echo(f"{file}: {finding}")
    if not result:
        click.echo(f"{file}: nothing wrong")
    return int(bool(result))


@command.command()
@click.argument("name", metavar="ALERT")
def runbook(name: str) -> None:
    """Print what an alert means and what to do first."""
    wanted = {n.lower(): n for n in NAMES} | {n.lower().removeprefix("straggler"): n for n in NAMES}
    if name.lower() not in wanted:
        remedy = "Case does not matter, and 'Straggler' may be left out."
        raise ConfigError.of("ALERT", name, f"one of {', '.join(NAMES)}", remedy)
    click.echo(chapter(wanted[name.lower()], AlertSettings()), nl=False)


_COLLECTOR_S: Final = 120.0
"""A collector asks several servers in turn."""
_PAGE: Final = "/v1/alerts/test"


@command.command(
    "test", short_help="Send a test alert through the real route; show where it arrived."
)
@click.option("--collector", metavar="URL", help="Its --metrics URL: test its notifications.")
@click.option("--alertmanager", "alertmanagers", multiple=True, metavar="URL", help="Each replica.")
@click.option("--webhook", default="", metavar="URL", help="That understands Alertmanager's.")
@click.option(
    "--severity",
    type=click.Choice(["info", "warning", "critical"]),
    default="critical",
    show_default=True,
    help="Routes look at it.",
)
@click.option("--for", "length", default="2m", show_default=True, help="How long it fires.")
@click.option("--token-file", default="", metavar="FILE", help="Holds a bearer token.")
@click.option("--username", default="", help="For basic authentication.")
@click.option("--password-file", default="", metavar="FILE", help="Holds the password.")
@click.option("--ca-file", default="", metavar="FILE", help="Authorities to trust, PEM.")
@click.option("--cert-file", default="", metavar="FILE", help="Own certificate, PEM.")
@click.option("--key-file", default="", metavar="FILE", help="Key of that certificate, PEM.")
@AS_JSON
def trial_command(
    collector: str | None,
    alertmanagers: tuple[str, ...],
    webhook: str,
    severity: str,
    length: str,
    as_json: bool,
    **access: Any,
) -> None:
    """Send a test alert through the real route; show where it arrived.

    Through a running collector (the default), as its alerts.notify says; or straight to
    Alertmanagers or a webhook. The alert is called StragglerTest, carries test="true" and mode
    page, and ends after --for: an Alertmanager ends it by itself, a webhook is notified. The exit
    code is 1 if it did not arrive everywhere.
    """
    lasts_s = seconds_of(length, "--for")
    if lasts_s > MAX_TRIAL_S:
        raise ConfigError.of("--for", length, "an hour at most", "For example 2m.")
    if sum(map(bool, (collector, alertmanagers, webhook))) > 1:
        raise ConfigError("--collector, --alertmanager and --webhook: give one of them.")
    settings = NotifySettings(alertmanagers=alertmanagers, webhook=webhook, **access)
    rows = rows_of(NotifySettings)
    rows["alertmanagers"].checked(alertmanagers, "--alertmanager")
    rows["webhook"].checked(webhook, "--webhook")
    check_notify(settings, "--")
    if not settings.is_on:
        reported = _through_collector(collector or DEFAULT_COLLECTOR, settings, severity, lasts_s)
        _show(reported, as_json=as_json)
        return
    now_s = time.time()
    alert = trial_alert(cast("Severity", severity), "page", now_s=now_s, lasts_s=lasts_s, labels={})
    if webhook:
        _report_webhook(webhook, settings, alert, lasts_s, as_json=as_json)
    else:
        destinations = try_alertmanagers(alertmanagers, settings, alert, now_s + lasts_s)
        _show(_answer(alert, now_s + lasts_s, destinations), as_json=as_json)


def _report_webhook(
    url: str, access: Access, alert: Alert, lasts_s: float, *, as_json: bool
) -> None:
    """Send the alert, and that it has ended after ``lasts_s`` or at Ctrl-C."""
    ends_at_s = alert.starts_at_s + lasts_s
    fired = try_webhook(url, access, alert)
    _show(_answer(alert, ends_at_s, (fired,)), as_json=as_json)
    if not as_json:
        click.echo(f"Its end is sent in {lasts_s:g} s; Ctrl-C ends it now.")
    try:
        time.sleep(lasts_s)
    finally:
        ended = try_webhook(url, access, replace(alert, ends_at_s=time.time()))
        if not ended.arrived:
            raise InputError(f"its end did not arrive. {printable(ended.why, 1_000)}")


def _answer(alert: Alert, ends_at_s: float, destinations: Iterable[Destination]) -> Json:
    return {
        "labels": dict(alert.labels),
        "ends_at": rfc3339(ends_at_s),
        "note": "",
        "places": [asdict(destination) for destination in destinations],
    }


def _through_collector(url: str, settings: NotifySettings, severity: str, lasts_s: float) -> Json:
    where = collector_url(url) + _PAGE
    access = replace(settings, timeout_s=_COLLECTOR_S)
    client: HttpClient = access.client(where)
    body = json.dumps({"severity": severity, "seconds": lasts_s}).encode()
    try:
        headers = access.headers() or token_headers()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: its secret cannot be read ({error}).") from None
    response = client.post(body, content_type="application/json", headers=headers)
    client.close()
    if response.status in (404, 405):
        value, expected = f"HTTP {response.status}", "a collector that can test its alerts"
        remedy = "Is it an older one, or is metrics.decisions off?"
        raise InputError.of(where, value, expected, remedy)
    if response.status in (401, 403):
        value, expected = f"HTTP {response.status}", "a token with the role operate"
        raise InputError.of(where, value, expected, TOKEN_REMEDY)
    if not response.is_success:
        raise UnavailableError(printable(tried_once(answer_of(response, where).why), 1_000))
    try:
        reported: Json = parse_json(response.body)
        return {**reported, "places": list(reported["places"]), "labels": dict(reported["labels"])}
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{where}: what it answers is not a collector's. Check the URL.") from None


def _show(reported: Json, *, as_json: bool) -> None:
    """Print; exit with 1 if it did not arrive everywhere."""
    if as_json:
        click.echo(json.dumps(reported))
    else:
        for line in _lines(reported):
            click.echo(printable(line, 1_000))
    arrived = [destination["arrived"] for destination in reported["places"]]
    if not arrived or not all(arrived):
        raise click.exceptions.Exit(1)


def _lines(reported: Json) -> Iterable[str]:
    labels = reported["labels"]
    what = f"severity {labels['severity']}, mode {labels['mode']}"
    yield f"{TRIAL}: {what}, until {reported['ends_at']}"
    for destination in reported["places"]:
        yield f"  {destination['url']}: {_outcome(destination)}"
    if reported["note"]:
        yield str(reported["note"])


def _outcome(destination: Json) -> str:
    if not destination["arrived"]:
        return f"not arrived. {destination['why']}"
    if not destination["receivers"]:
        return "arrived"
    routed = f"arrived; routed to {', '.join(destination['receivers'])}"
    if destination["silenced_by"]:
        return f"{routed}, but silenced by {', '.join(destination['silenced_by'])}"
    if destination["inhibited_by"]:
        return f"{routed}, but inhibited by {', '.join(destination['inhibited_by'])}"
    return routed
