"""``alerts test`` says where a test alert arrived, and why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from otel_straggler.cli.alerts import command
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    AlertsSettings,
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
)

from ..servers.alertmanager import free_address, running_alertmanager
from ..servers.receiver import Receiver

FREE = "127.0.0.1:0"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["test", *arguments])


@pytest.mark.real_server
def test_straight_to_a_real_alertmanager(tmp_path: Path) -> None:
    """Each replica has a line; the exit code says whether all have it."""
    away = f"http://{free_address()}"
    with running_alertmanager(tmp_path) as real:
        good = run("--alertmanager", real.url)
        assert good.exit_code == 0
        assert f"  {real.url}: arrived; routed to nobody\n" in good.output
        assert "StragglerTest: severity critical, mode page, until 20" in good.output
        half = run("--alertmanager", real.url, "--alertmanager", away, "--severity", "info")
        assert half.exit_code == 1
        assert f"{away}: not arrived. " in half.output
        assert "nothing listens there" in half.output
        (alert,) = [a for a in real.alerts() if a["labels"]["severity"] == "info"]
        assert alert["labels"]["test"] == "true"


def test_straight_to_a_webhook() -> None:
    """That it fires, then that it has ended."""
    with Receiver() as receiver:
        answer = run("--webhook", receiver.url, "--for", "0.1s", "--json")
    assert answer.exit_code == 0
    assert json.loads(answer.output)["places"][0]["arrived"] is True
    assert [r.body["status"] for r in receiver.received] == ["firing", "resolved"]


def test_through_a_collector() -> None:
    """By its own settings; nothing named is said, with the exit code 1."""
    with Receiver() as receiver:
        for webhook, code, text in (("", 1, "alerts.notify"), (receiver.url, 0, ": arrived")):
            answer = _through(webhook, "--for", "1s")
            assert (answer.exit_code, text in answer.output) == (code, True)
    assert receiver.received


def _through(webhook: str, *arguments: str) -> Result:
    collector = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
            alerts=AlertsSettings(mode="page", notify=NotifySettings(webhook=webhook)),
        )
    )
    where = collector.start()
    try:
        return run("--collector", f"http://{where['metrics']}", *arguments)
    finally:
        collector.stop()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--alertmanager", "am:9093"), "http://"),
        (("--webhook", "http://me:secret@b"), "without a name or password"),
        (("--webhook", "http://b", "--alertmanager", "http://a"), "give one of them"),
        (("--for", "2h"), "an hour at most"),
        (("--for", "soon"), "s, m, h or d"),
        (("--ca-file", "/none"), "/none"),
        (("--collector", "localhost"), "http"),
    ],
)
def test_what_is_wrong_is_a_sentence(arguments: tuple[str, ...], text: str) -> None:
    """Before anything is sent."""
    error: Any = run(*arguments).exception
    assert text in str(error)


def test_something_else_at_the_address_is_said() -> None:
    """A page that is no collector's."""
    with Receiver(text="<html>") as other, Receiver(404) as older:
        assert "not a collector's" in str(run("--collector", other.url).exception)
        assert "Is it an older one" in str(run("--collector", older.url).exception)
