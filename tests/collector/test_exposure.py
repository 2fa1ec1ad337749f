"""A collector that other machines reach has grants, or somebody has said that it needs none."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.access.settings import AuthSettings, TlsSettings
from otel_straggler.collector.access.tls import check_tls
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings_file import load_settings
from otel_straggler.doctor.collector import check_exposure, read_collector
from otel_straggler.errors import ConfigError

from .authorities import TOKENS, bearer, write_grants

OPEN = "0.0.0.0:0"
ADDRESSES = ("receivers__otlp_http", "receivers__otlp_grpc", "metrics__listen")


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("listen", [OPEN, "[::]:0"])
def test_an_address_of_the_network_without_grants_stops_the_start(
    kit: Any, address: str, listen: str
) -> None:
    """Before anything is opened; the message says both ways out."""
    with pytest.raises(ConfigError) as raised:
        Collector(kit.settings(**{address: listen})).start()
    message = str(raised.value)
    assert address.replace("__", ".") in message
    assert "auth.grant_files" in message
    assert "--insecure" in message


def test_a_name_of_the_network_is_no_loopback(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name counts by its addresses; one without any is not trusted."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("10.0.0.9", 0))])
    with pytest.raises(ConfigError, match=r"metrics\.listen"):
        Collector(kit.settings(metrics__listen="collector.internal:0")).start()


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback stands for the network: tests listen on nothing else."""
    monkeypatch.setattr("otel_straggler.collector.settings_file.is_loopback", lambda _: False)


@pytest.mark.usefixtures("network")
def test_grants_open_the_network_without_a_warning(
    start: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The page shows no banner, whatever else is set."""
    live = start(auth__grant_files=(write_grants(tmp_path),), auth__insecure=True)
    shown = live.get("/v1/runs", bearer(TOKENS["read"]))
    assert (shown.status, "is_insecure" in shown.json()) == (200, False)
    assert not [m for m in caplog.messages if "insecure" in m]


@pytest.mark.usefixtures("network")
def test_insecure_opens_it_and_is_shown(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    """In the log, on the page, and by the doctor."""
    live = start(auth__insecure=True)
    shown = live.get("/v1/runs").json()
    assert shown["is_insecure"] is True
    assert "anybody who reaches it can silence alerts" in shown["problems"][0]
    assert [m for m in caplog.messages if m.startswith("auth.insecure: anybody who reaches")]
    collector = read_collector(f"http://{live.addresses['metrics']}", 5.0)
    assert not isinstance(collector, str)
    [finding] = check_exposure(collector)
    assert (finding.id, finding.status) == ("collector.insecure", "warning")
    assert "auth: {grant_files:" in finding.remedy


def test_insecure_means_nothing_on_loopback(start: Any) -> None:
    """Nobody else gets there."""
    assert "is_insecure" not in start(auth__insecure=True).get("/v1/runs").json()


def test_the_flag_and_the_file_say_the_same(tmp_path: Path) -> None:
    """``--insecure`` and ``auth.insecure: true``."""
    file = tmp_path / "collector.yaml"
    file.write_text("auth:\n  insecure: true\n")
    assert load_settings(file, {}).auth == AuthSettings(insecure=True)
    assert load_settings(None, {"auth.insecure": True}).auth == AuthSettings(insecure=True)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (TlsSettings(key_file="k"), "tls.cert_file with it"),
        (TlsSettings(client_ca_file="c"), "tls.cert_file with it"),
        (TlsSettings(cert_file="c", require_client_cert=True), "tls.client_ca_file with it"),
    ],
)
def test_half_of_the_settings_of_tls_is_refused(settings: TlsSettings, part: str) -> None:
    """Somebody thinks that it is on."""
    with pytest.raises(ConfigError, match=part):
        check_tls(settings)
