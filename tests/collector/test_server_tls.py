"""TLS of all addresses: renewed certificates, and certificates of clients as credentials."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_straggler.collector.access.settings import TlsSettings
from otel_straggler.collector.access.tls import ServerTls
from otel_straggler.collector.ingest.grpc_messages import METHODS
from otel_straggler.config import Endpoint
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients.client import client_for

from .authorities import TOKENS, Authority, bearer, write_grants

TRACES = next(iter(METHODS))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs all certificates of a test."""
    return Authority(tmp_path)


def get(live: Any, context: ssl.SSLContext, token: str | None = None) -> int:
    host, _, port = live.addresses["metrics"].rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=context)
    try:
        connection.request("GET", "/v1/runs", headers=bearer(token))
        return connection.getresponse().status
    finally:
        connection.close()


def serial(address: str, context: ssl.SSLContext) -> str:
    """Of the certificate that a new connection sees."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


def test_a_renewed_certificate_is_served_without_a_restart(
    start: Any, kit: Any, authority: Authority
) -> None:
    """On all three addresses; connections that are open go on."""
    live = start(**authority.settings())
    context = authority.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    before = {name: serial(address, context) for name, address in live.addresses.items()}
    assert len(set(before.values())) == 1
    authority.renew()
    for address in live.addresses.values():
        kit.eventually(lambda at=address: serial(at, context) not in before.values())


def test_a_renewal_that_cannot_be_used_changes_nothing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of a file, or another's key: the log says so, and the one before is served."""
    now = [0.0]
    settings = TlsSettings(cert_file=authority.cert_file, client_ca_file=authority.ca_file)
    tls = ServerTls(settings, lambda: now[0])
    file = Path(authority.cert_file)
    good = file.read_bytes()
    file.write_bytes(good[:400])
    now[0] += 1.0
    tls.refresh()
    assert [m for m in caplog.messages if "the certificate of before stays in use" in m]
    caplog.set_level(logging.INFO)
    file.write_bytes(good + b"\n")
    now[0] += 1.0
    tls.refresh()
    assert [m for m in caplog.messages if "the certificate was read again" in m]


def test_only_a_renewal_is_called_one(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not a file that comes or goes in the working directory, nor the same content once more."""
    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    now = [0.0]
    tls = ServerTls(TlsSettings(cert_file=authority.cert_file), lambda: now[0])
    certificate = Path(authority.cert_file)

    def lines_after(change: Callable[[], object]) -> list[str]:
        caplog.clear()
        change()
        now[0] += 1.0
        tls.refresh()
        return caplog.messages

    assert lines_after((tmp_path / "history.db-wal").touch) == []
    os.utime(tmp_path, ns=(1, 1))  # where the clock of the file system is coarse
    assert lines_after(lambda: os.utime(tmp_path, ns=(2, 2))) == []
    assert lines_after(lambda: os.utime(certificate, ns=(1, 1))) == []
    assert lines_after(lambda: certificate.write_bytes(certificate.read_bytes())) == []
    renewed = certificate.read_bytes() + b"\n"
    assert lines_after(lambda: certificate.write_bytes(renewed)) == [
        "tls: the certificate was read again, for HTTP"
    ]


@pytest.mark.parametrize("name", ["cert_file", "key_file", "client_ca_file"])
def test_a_file_that_is_none_stops_the_start(authority: Authority, name: str) -> None:
    """Missing, or no PEM."""
    wrong = Path(authority.ca_file).parent / "wrong"
    files = {"cert_file": authority.cert_file, name: str(wrong)}
    with pytest.raises(ConfigError, match=rf"tls\.{name}"):
        ServerTls(TlsSettings(**files))
    wrong.write_text("nonsense")
    with pytest.raises(ConfigError, match=r"tls\.(cert|client_ca)_file"):
        ServerTls(TlsSettings(**files))


def test_a_client_certificate_is_a_credential(
    start: Any, authority: Authority, tmp_path: Path
) -> None:
    """Where one is wanted but not required, a token does as well; a foreign one is refused."""
    grants = write_grants(tmp_path, "read alice certificate:alice.example.org")
    tls = authority.settings(client_ca_file=authority.ca_file)
    live = start(auth__grant_files=(grants,), **tls)
    assert get(live, authority.context(authority.client("alice.example.org"))) == 200
    assert get(live, authority.context(authority.client("bob.example.org"))) == 401
    assert get(live, authority.context()) == 401
    assert get(live, authority.context(), TOKENS["read"]) == 200
    folder = tmp_path / "other"
    folder.mkdir()
    stranger = Authority(folder).client("alice.example.org")
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        get(live, authority.context(stranger))


def test_required_client_certificates_are_credentials_over_grpc_too(
    start: Any, authority: Authority, tmp_path: Path
) -> None:
    """Nobody without one gets a connection; the role is that of its name."""
    grants = write_grants(
        tmp_path, "ingest node certificate:node.example.org", "read me certificate:me.example.org"
    )
    tls = authority.settings(client_ca_file=authority.ca_file, require_client_cert=True)
    live = start(auth__grant_files=(grants,), **tls)

    def call(client: str | None) -> grpc.StatusCode:
        own = None if client is None else Path(authority.client(client)).read_bytes()
        roots = Path(authority.ca_file).read_bytes()
        credentials = grpc.ssl_channel_credentials(roots, own, own)
        with grpc.secure_channel(live.addresses["otlp_grpc"], credentials) as channel:
            try:
                channel.unary_unary(TRACES)(b"", timeout=30)
            except grpc.RpcError as error:
                return error.code()
            return grpc.StatusCode.OK

    assert call("node.example.org") is grpc.StatusCode.OK
    assert call("me.example.org") is grpc.StatusCode.PERMISSION_DENIED
    assert call("else.example.org") is grpc.StatusCode.UNAUTHENTICATED
    assert call(None) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_our_own_client_sends_a_token_over_tls(
    start: Any, kit: Any, authority: Authority, tmp_path: Path, protocol: Any
) -> None:
    """As OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE have it."""
    live = start(auth__grant_files=(write_grants(tmp_path),), **authority.settings())
    name, path = ("otlp_http", "/v1/traces") if protocol != "grpc" else ("otlp_grpc", "")
    url = f"https://{live.addresses[name]}{path}"

    def status(token: str) -> int:
        endpoint = Endpoint(
            url=url,
            protocol=protocol,
            headers=tuple(bearer(token).items()),
            ca_file=authority.ca_file,
        )
        client = client_for(endpoint, "traces")
        try:
            body = kit.spans_of(kit.rank(0, 1), range(8))
            return client.post(body, content_type="application/x-protobuf").status
        finally:
            client.close()

    assert (status(TOKENS["ingest"]), status(TOKENS["read"])) == (200, 403)


def test_plain_http_on_a_tls_address_ends_at_once(
    start: Any, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """And leaves no traceback in the log."""
    live = start(**authority.settings())
    host, _, port = live.addresses["otlp_http"].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as plain:
        plain.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while plain.recv(1024):
                pass
    assert get(live, authority.context()) == 200
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_an_answer_over_tls_is_whole(start: Any, authority: Authority) -> None:
    """The connection closes after an answer that says so, with no warning of asyncio."""
    live = start(**authority.settings())
    host, _, port = live.addresses["metrics"].rpartition(":")
    context = authority.context()
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        secured.sendall(b"GET /page/style.css HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        secured.settimeout(30)
        received = b"".join(iter(lambda: secured.recv(65_536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(x for x in head.split(b"\r\n") if x.lower().startswith(b"content-length"))
    assert len(body) == int(length.split(b":")[1])


def test_open_event_streams_work_over_tls(start: Any, authority: Authority) -> None:
    """The first piece comes at once."""
    live = start(**authority.settings())
    host, _, port = live.addresses["metrics"].rpartition(":")
    connection = http.client.HTTPSConnection(
        host, int(port), timeout=30, context=authority.context()
    )
    connection.request("GET", "/v1/events")
    response = connection.getresponse()
    assert (response.status, response.readline()) == (200, b"retry: 1000\n")
    connection.close()
