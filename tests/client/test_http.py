"""The HTTP client: every failure is an answer."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_straggler.otlp.clients.addresses import proxy_of
from otel_straggler.otlp.clients.client import NO_ANSWER, Response, is_retryable, retry_delay_s
from otel_straggler.otlp.clients.http import MAX_ANSWER_BYTES, HttpClient
from otel_straggler.testing import CapturedRequests

from ..publish.sink import Sink
from ..servers.certificate import make_certificate

TYPE = "application/x-protobuf"


def test_a_request_arrives_as_it_was_sent(sink: CapturedRequests) -> None:
    """Body, path and headers; the answer's headers come back in lower case."""
    client = HttpClient(sink.url + "/v1/x", headers={"authorization": "Bearer a"})
    answer = client.post(b"body", content_type=TYPE, headers={"x-run": "1"})
    (request,) = sink.requests
    assert (request.path, request.body) == ("/v1/x", b"body")
    assert request.headers["authorization"] == "Bearer a"
    assert request.headers["x-run"] == "1"
    assert request.headers["content-type"] == TYPE
    assert (answer.status, answer.is_success) == (200, True)
    assert answer.headers["otel-straggler-scorer"] == "1"


def test_netrc_does_not_replace_the_own_authorization(
    sink: CapturedRequests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks into it, as curl and `requests` do."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    client = HttpClient(sink.url, headers={"authorization": "Bearer a"})
    client.post(b"", content_type=TYPE)
    assert sink.requests[0].headers["authorization"] == "Bearer a"


def test_nobody_listening_is_an_answer() -> None:
    """And one that may be tried again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        answer = HttpClient(f"http://127.0.0.1:{taken.getsockname()[1]}").post(
            b"", content_type=TYPE
        )
    assert answer.status == NO_ANSWER
    assert answer.error == "Connection refused"
    assert is_retryable(answer)


def test_silence_is_an_answer_after_the_time_out() -> None:
    """A listening socket that nobody serves takes the connection and says nothing."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = HttpClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
        answer = client.post(b"", content_type=TYPE)
    assert answer.status == NO_ANSWER
    assert answer.error == "timed out"


def test_a_client_works_again_after_a_lost_connection(sink: CapturedRequests) -> None:
    """With a fresh connection."""
    client = HttpClient(sink.url)
    sink.behaviour.drops_connections = True
    assert client.post(b"", content_type=TYPE).status == NO_ANSWER
    sink.behaviour.drops_connections = False
    assert client.post(b"", content_type=TYPE).is_success


@pytest.mark.parametrize("option", ["ca_file", "client_cert_file"])
def test_a_missing_certificate_is_an_answer(option: str) -> None:
    """It is not found before the first request, and must not end the thread."""
    client = HttpClient("https://127.0.0.1:1", **{option: "/nowhere.pem"})  # type: ignore[arg-type]
    answer = client.post(b"", content_type=TYPE)
    assert answer.status == NO_ANSWER
    assert "/nowhere.pem" in answer.error


@pytest.mark.parametrize(
    ("status", "expected"),
    [(200, False), (400, False), (429, True), (500, False), (502, True), (503, True), (504, True)],
)
def test_what_may_be_sent_again(status: int, expected: bool) -> None:
    """As OTLP's specification lists."""
    assert is_retryable(Response(status)) is expected


def test_delays_are_jittered_and_capped() -> None:
    """A thousand ranks must not come back in the same moment."""
    assert retry_delay_s(1, rng=lambda: 0.0) == 0.5
    assert retry_delay_s(1, rng=lambda: 1.0) == 1.0
    assert retry_delay_s(50, rng=lambda: 1.0) == 30.0


def test_an_absurd_retry_after_is_capped() -> None:
    """A wrong clock must not silence a rank for a year."""
    assert Response(503, {"retry-after": "99999999"}).retry_after_s == 300.0
    assert Response(503, {"retry-after": "-5"}).retry_after_s == 0.0
    assert Response(503, {}).retry_after_s is None


def test_a_proxy_of_the_environment_is_used_and_no_proxy_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are looked up once per connection, not with every request."""
    proxy, direct = Sink(), Sink()
    try:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        url = "http://nowhere.invalid:1/v1/traces"
        assert HttpClient(url).post(b"a", content_type="text/plain").is_success
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        client = HttpClient(f"{direct.url}/v1/traces")
        for _ in range(2):
            assert client.post(b"b", content_type="text/plain").is_success
        assert [(path, body) for path, body, _, _ in proxy.received] == [(url, b"a")]
        assert [body for _, body, _, _ in direct.received] == [b"b", b"b"]
    finally:
        proxy.close()
        direct.close()


@pytest.mark.parametrize(
    ("no_proxy", "url", "is_direct"),
    [
        ("10.0.0.0/8", "http://10.1.2.3:4318", True),
        ("10.0.0.0/8", "http://11.1.2.3:4318", False),
        (".cluster.local", "http://a.cluster.local", True),
        ("a:4318", "http://a:4318", True),
        ("a:4318", "http://a:4317", False),
        ("::1", "http://[::1]:4318", True),
        ("*", "http://a", True),
        ("", "http://a", False),
    ],
)
def test_who_is_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, url: str, is_direct: bool
) -> None:
    """Names, ports, networks."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "proxy:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    assert proxy_of(url) == ("" if is_direct else "http://proxy:3128")


def test_tls_goes_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy sees the address and its own password, not what is sent."""
    make_certificate(tmp_path, days=3, untried="TLS through a proxy")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    heads: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        heads.append(connection.recv(65_536))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as secured:
            heads.append(secured.recv(65_536))
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        port = listening.getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://me:s%40cret@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        client = HttpClient("https://localhost:7/v1/traces", ca_file=str(tmp_path / "cert.pem"))
        answer = client.post(b"body", content_type=TYPE)
        client.close()
        thread.join()
    assert (answer.error, answer.status, answer.body) == ("", 200, b"hi")
    assert heads[0].startswith(b"CONNECT localhost:7 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c0BjcmV0\r\n" in heads[0]
    assert heads[1].startswith(b"POST /v1/traces HTTP/1.1\r\nHost: localhost:7\r\n")
    assert b"Proxy-Authorization" not in heads[1]


def test_a_proxy_that_refuses_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its status."""
    proxy = Sink()  # knows no CONNECT
    try:
        monkeypatch.setenv("https_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        answer = HttpClient("https://nowhere.invalid/").post(b"", content_type=TYPE)
    finally:
        proxy.close()
    assert answer.status == NO_ANSWER
    assert answer.error.startswith("Tunnel connection failed")


def test_a_header_cannot_smuggle_another() -> None:
    """It is not sent at all."""
    client = HttpClient("http://127.0.0.1:9", headers={"a": "b\r\nc: d"})
    assert client.get().status == NO_ANSWER


def test_a_page_can_be_asked_for_in_the_same_way() -> None:
    """The body comes back; a failure is an answer, a redirect is not followed."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = HttpClient(f"http://127.0.0.1:{server.getsockname()[1]}/page", timeout_s=5.0)

        def answer_once(answer: bytes, heads: list[bytes]) -> None:
            connection, _ = server.accept()
            with connection:
                heads.append(connection.recv(65_536))
                connection.sendall(answer)

        heads: list[bytes] = []
        for status, reported in ((200, b"hello"), (302, b"")):
            head = f"HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:9/\r\n"
            whole = (
                f"{head}Content-Length: {len(reported)}\r\nConnection: close\r\n\r\n".encode()
                + reported
            )
            thread = threading.Thread(target=answer_once, args=(whole, heads))
            thread.start()
            got = client.get(headers={"authorization": "Bearer a"})
            thread.join()
            assert (got.status, got.body) == (status, reported)
    assert all(head.startswith(b"GET /page HTTP/1.1\r\n") for head in heads)
    assert all(b"authorization: Bearer a" in head for head in heads)
    assert client.get().status == NO_ANSWER


def _endless(connection: socket.socket) -> None:
    """A success with a body of 10 MB, as of a thousand pages of partial success."""
    size = 10 * 1024 * 1024
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
    connection.sendall(bytes(size))


def _cut_off(connection: socket.socket) -> None:
    """A reset in the middle of the answer."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def _half(connection: socket.socket) -> None:
    """An orderly end in the middle of the answer."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def _drip(connection: socket.socket) -> None:
    """Byte after byte, so that no single wait is ever long."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(10_000):
        connection.sendall(b"1\r\nx\r\n")
        threading.Event().wait(0.02)


def _nonsense(connection: socket.socket) -> None:
    connection.sendall(b"\0\xff" * 100_000)


@pytest.mark.parametrize("behave", [_endless, _half, _cut_off, _drip, _nonsense])
def test_whatever_a_collector_answers_costs_little_time_and_memory(
    behave: Callable[[socket.socket], None],
) -> None:
    """It is an answer, a short one, within the deadline; nothing is raised at who sends."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"
        client = HttpClient(url, timeout_s=0.5 if behave is _drip else 20.0)

        def answer_all() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(65_536)
                        behave(connection)

        thread = threading.Thread(target=answer_all, daemon=True)
        thread.start()
        response = client.post(b"spans", content_type="text/plain")
        assert len(response.body) <= MAX_ANSWER_BYTES
        assert response.is_success == (behave is _endless)
        client.close()
        server.shutdown(socket.SHUT_RDWR)
    thread.join(20.0)
