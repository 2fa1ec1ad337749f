"""Certificates are short-lived where something like cert-manager renews the files: what lies in
them is read with each new connection, so no training run has to be restarted for it."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.config import Endpoint
from otel_straggler.otlp.clients.client import client_for

from ..servers.certificate import make_certificate
from ..waiting import eventually


class Takes(http.server.BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.send_header("connection", "close")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def context_of(folder: Path) -> ssl.SSLContext:
    """Of a server that wants to know its clients, by the files as they are now."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "cert.pem")
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def over_http(folder: Path) -> Iterator[tuple[int, Callable[[], Callable[[], int]]]]:
    """A server; its port, and what makes it go on with the files as they are now, which tells how
    many clients it has met since."""
    context = [context_of(folder)]
    met: list[int] = []

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def get_request(self) -> tuple[socket.socket, Any]:
            plain, address = super().get_request()
            plain.settimeout(20.0)
            met.append(id(context[0]))
            return context[0].wrap_socket(plain, server_side=True), address

        def handle_error(self, *_: Any) -> None:
            pass

    def renew() -> Callable[[], int]:
        context[0] = context_of(folder)
        return lambda: met.count(id(context[0]))

    server = Server(("localhost", 0), Takes)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1], renew
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def over_grpc(folder: Path) -> Iterator[tuple[int, Callable[[], Callable[[], int]]]]:
    """The same; connections are ended by the server soon, as by a proxy."""
    import grpc

    def configuration() -> Any:
        cert, key = (folder / "cert.pem").read_bytes(), (folder / "key.pem").read_bytes()
        return grpc.ssl_server_certificate_configuration([(key, cert)], cert)

    current = [configuration()]
    met: list[int] = []

    def meet() -> Any:
        met.append(id(current[0]))
        return current[0]

    def renew() -> Callable[[], int]:
        current[0] = configuration()
        return lambda: met.count(id(current[0]))

    handler = grpc.unary_unary_rpc_method_handler(lambda _message, _context: b"")
    service = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.trace.v1.TraceService", {"Export": handler}
    )
    server = grpc.server(
        ThreadPoolExecutor(1),
        handlers=[service],
        options=[("grpc.max_connection_age_ms", 50), ("grpc.max_connection_age_grace_ms", 1_000)],
    )
    credentials = grpc.dynamic_ssl_server_credentials(current[0], meet, True)
    port = server.add_secure_port("localhost:0", credentials)
    server.start()
    try:
        yield port, renew
    finally:
        server.stop(0.0).wait()


@pytest.mark.parametrize(
    ("protocol", "serve"),
    [("http/protobuf", over_http), ("grpc", over_grpc)],
    ids=["http", "grpc"],
)
def test_renewed_files_are_taken_without_a_restart(
    protocol: Any, serve: Any, tmp_path: Path
) -> None:
    """The server's certificate, the authority that we trust and our own: all are new, and the old
    ones are good for nothing any more."""
    make_certificate(tmp_path, days=1, untried="a renewed certificate")
    old = (tmp_path / "cert.pem").read_bytes()
    content_type = "application/x-protobuf"
    with serve(tmp_path) as (port, renew):
        endpoint = Endpoint(
            url=f"https://localhost:{port}" + ("" if protocol == "grpc" else "/v1/traces"),
            protocol=protocol,
            ca_file=str(tmp_path / "cert.pem"),
            client_cert_file=str(tmp_path / "cert.pem"),
            client_key_file=str(tmp_path / "key.pem"),
        )
        client = client_for(endpoint, "traces")
        try:
            eventually(lambda: client.post(b"1", content_type=content_type).status == 200)
            make_certificate(tmp_path, days=1, untried="a renewed certificate")
            assert (tmp_path / "cert.pem").read_bytes() != old
            met = renew()
            eventually(lambda: client.post(b"2", content_type=content_type).status == 200 and met())
        finally:
            client.close()
