"""``otel-straggler collector`` as a process."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_straggler.cli.collector import (
    freeze_garbage_collector,
    raise_file_limit,
    signals_that_end,
)
from otel_straggler.cli.group import otel_straggler
from otel_straggler.errors import ConfigError

from .authorities import TOKENS, bearer, write_grants

COMMAND = [sys.executable, "-m", "otel_straggler.cli", "collector"]
FREE = ["--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]


@pytest.fixture
def process() -> Iterator[Any]:
    """A collector on free ports, and its addresses; not one that outlives a terminal, as all would
    be that tests start which nohup has started."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        started = subprocess.Popen(
            [*COMMAND, *FREE, "--window-steps", "4"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    with started:
        assert started.stdout is not None
        started.addresses = json.loads(started.stdout.readline())  # type: ignore[attr-defined]
        yield started
        if started.poll() is None:
            started.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_until_a_signal_and_ends_with_zero(
    process: Any, kit: Any, number: signal.Signals
) -> None:
    """The first line has the addresses; logs, and where to look, go to standard error."""
    addresses = process.addresses
    assert sorted(addresses) == ["metrics", "otlp_grpc", "otlp_http"]
    headers = {"Content-Type": "application/x-protobuf"}
    body = kit.spans_of(kit.rank(0, 1), range(8))
    assert kit.ask(addresses["otlp_http"], "POST", "/v1/traces", body, headers).status == 200
    kit.eventually(
        lambda: (
            kit.ask(addresses["metrics"], "GET", "/v1/report").json()["runs"]["run"]["windows"]
            if "run" in kit.ask(addresses["metrics"], "GET", "/v1/report").json()["runs"]
            else None
        )
    )
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert f"live page: http://{addresses['metrics']}/\n" in err
    last = json.loads(err.rpartition("counts at the end: ")[2])
    assert last["spans"]["row"] == last["rows"]["scored"] == 8
    assert "Traceback" not in err


def test_a_log_of_json_has_one_object_a_line_with_zone_and_audit(tmp_path: Path, kit: Any) -> None:
    """What stores logs needs no pattern for it; a text has the same time."""
    grants = write_grants(tmp_path)
    auth = json.dumps({"auth": {"grant_files": [grants]}, "log": {"format": "json"}})
    config = tmp_path / "collector.yaml"
    config.write_text(auth)
    mute = json.dumps({"node": "node-7", "seconds": 60, "reason": "fan"}).encode()
    said: dict[str, str] = {}
    for form in ("json", "text"):
        started = subprocess.Popen(
            [*COMMAND, *FREE, "--config", str(config), "--log-format", form],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with started:
            assert started.stdout is not None
            metrics = json.loads(started.stdout.readline())["metrics"]
            headers = {"Content-Type": "application/json", **bearer(TOKENS["operate"])}
            answer = kit.ask(metrics, "POST", "/v1/maintenance", mute, headers)
            assert answer.status == 200, answer.body
            started.send_signal(signal.SIGTERM)
            said[form] = started.communicate(timeout=60)[1]
    lines = [json.loads(line) for line in said["json"].splitlines()]
    assert len(lines) >= 3
    for line in lines:
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
        assert line["logger"].startswith("otel_straggler.")
    [audited] = [line for line in lines if "audit" in line]
    assert (audited["logger"], audited["level"]) == ("otel_straggler.audit", "INFO")
    assert audited["audit"]["who"] == "operate-user"
    assert audited["audit"]["what"] == "POST /v1/maintenance"
    for line in said["text"].splitlines():
        assert datetime.fromisoformat(line.partition(" ")[0]).utcoffset() is not None


def test_a_process_that_ignores_hanging_up_goes_on() -> None:
    """As nohup starts it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in signals_that_end()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in signals_that_end()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("flag", ["--otlp-http", "--otlp-grpc", "--metrics"])
def test_a_taken_port_names_its_flag(flag: str) -> None:
    """Exit code 2, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run([*FREE, flag, address])
    assert ended.returncode == 2
    assert flag in ended.stderr
    assert address in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config", "/nowhere.yaml"], "--config"),
        (["--window-steps", "0"], "--window-steps"),
        (["--window-seconds", "nan"], "--window-seconds"),
        (["--otlp-http", "4318"], "--otlp-http"),
        (["--forward", "gateway"], "--forward"),
    ],
)
def test_wrong_settings_end_with_two_and_one_sentence(arguments: list[str], expected: str) -> None:
    """Named by flag."""
    ended = run([*FREE, *arguments])
    assert ended.returncode == 2
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr


def test_missing_packages_name_the_extra(tmp_path: Path) -> None:
    """A training image has no httptools; the collector's host needs it."""
    (tmp_path / "httptools.py").write_text("raise ModuleNotFoundError(name='httptools')\n")
    ended = run(FREE, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert ended.returncode == 2
    assert "pip install 'otel-straggler[collector]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_connections_may_be_more_than_the_system_begins_with() -> None:
    """As many as the hard limit allows, and not fewer than there were."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        raise_file_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1]
        assert soft == (8_192 if hard == resource.RLIM_INFINITY else min(hard, 8_192))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_modules_are_no_work_for_the_garbage_collector() -> None:
    """It looked through all of them while requests came in: half of a receiver's time."""
    assert gc.get_freeze_count() == 0
    freeze_garbage_collector()
    try:
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()


def test_a_file_of_settings_can_be_checked_without_a_start(tmp_path: Path) -> None:
    """Before it is rolled out: nothing is opened, and what a start would refuse is refused."""
    grants, config = tmp_path / "grants", tmp_path / "collector.yaml"
    config.write_text(f"metrics: {{listen: '0.0.0.0:9464'}}\nauth: {{grant_files: [{grants}]}}\n")
    run = CliRunner()
    missing = run.invoke(otel_straggler, ["collector", "--config", str(config), "--check"])
    assert isinstance(missing.exception, ConfigError)
    assert "a readable file of grants" in str(missing.exception)
    grants.write_text("read prometheus token:0123456789abcdef\n")
    checked = run.invoke(otel_straggler, ["collector", "--config", str(config), "--check"])
    assert (checked.exit_code, checked.output) == (
        0,
        "The collector would start with these settings.\n",
    )
    config.write_text("metrics: {listen: '0.0.0.0:9464'}\n")
    exposed = run.invoke(otel_straggler, ["collector", "--config", str(config), "--check"])
    assert "a loopback address where there are no grants" in str(exposed.exception)
