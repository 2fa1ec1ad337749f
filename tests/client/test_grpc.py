"""The gRPC client: every failure is an answer, in HTTP's words."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients import grpc as transport
from otel_straggler.otlp.clients.client import NO_ANSWER, Response, is_retryable
from otel_straggler.otlp.clients.grpc import EXPORT_METHODS, GrpcClient
from otel_straggler.testing import CapturedRequests

from ..servers.certificate import make_certificate

TRACES = EXPORT_METHODS["traces"]
TYPE = "application/x-protobuf"
Serve = Callable[..., str]


@pytest.fixture
def protocol() -> str:
    return "grpc"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server whose only method is the given function; gives its URL."""
    servers = []

    def start(answer: Callable[[bytes, Any], bytes], credentials: Any = None) -> str:
        class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
            def service(self, call: Any) -> Any:
                return grpc.unary_unary_rpc_method_handler(answer)

        server = grpc.server(ThreadPoolExecutor(2), handlers=[Handlers()])
        servers.append(server)
        if credentials is None:
            url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        else:
            url = f"https://localhost:{server.add_secure_port('localhost:0', credentials)}"
        server.start()
        return url

    yield start
    for server in servers:
        server.stop(0).wait()


def post(url: str, **options: Any) -> Response:
    return GrpcClient(url, TRACES, **options).post(b"x", content_type=TYPE)


def aborting(code: str, trailing: tuple[tuple[str, Any], ...] = ()) -> Callable[..., bytes]:
    def answer(message: bytes, context: Any) -> bytes:
        context.set_trailing_metadata(trailing)
        context.abort(grpc.StatusCode[code], "in so many words")

    return answer


def retry_info(seconds: int, nanos: int = 0) -> tuple[tuple[str, bytes], ...]:
    status = Status(code=14)
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=seconds, nanos=nanos)))
    return (("grpc-status-details-bin", status.SerializeToString()),)


def test_a_request_arrives_as_it_was_sent(sink: CapturedRequests) -> None:
    """Method, body and headers, in lower case as gRPC wants them; what the server says beside its
    answer comes back, among it that it scores."""
    client = GrpcClient(sink.url, EXPORT_METHODS["metrics"], headers={"Authorization": "Bearer a"})
    answer = client.post(b"body", content_type=TYPE)
    (request,) = sink.requests
    assert (request.path, request.body) == ("/v1/metrics", b"body")
    assert request.headers["authorization"] == "Bearer a"
    assert (answer.status, answer.error, answer.is_success) == (200, "", True)
    assert answer.headers["otel-straggler-scorer"] == "1"


def test_nobody_listening_is_an_answer() -> None:
    """And one that may be tried again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        answer = post(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert answer.status == NO_ANSWER
    assert "refused" in answer.error
    assert is_retryable(answer)


def test_silence_is_an_answer_after_the_time_out() -> None:
    """Also where the connection is taken and nothing follows."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        answer = post(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
    assert answer.status == NO_ANSWER
    assert "DEADLINE_EXCEEDED" in answer.error


def test_a_server_that_hangs_is_given_up(serve: Serve) -> None:
    """It took the request; the next one opens a fresh connection."""
    may_end = threading.Event()

    def hang(message: bytes, context: Any) -> bytes:
        may_end.wait(20)
        return b""

    answer = post(serve(hang), timeout_s=0.2)
    may_end.set()
    assert answer.status == NO_ANSWER
    assert is_retryable(answer)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 200 OK\r\n\r\n", b"\0" * 100, b""])
def test_another_program_on_the_port_is_an_answer(garbage: bytes) -> None:
    """For example the port of OTLP over HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(garbage)

        thread = threading.Thread(target=talk)
        thread.start()
        answer = post(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=1.0)
        thread.join()
    assert answer.status == NO_ANSWER
    assert answer.error


def test_a_server_that_answers_garbage_is_an_answer(serve: Serve) -> None:
    """Its bytes are passed on; whoever reads them must expect anything."""
    assert post(serve(lambda message, context: b"\xff" * 50)).body == b"\xff" * 50


def test_an_answer_of_five_megabytes_is_refused(serve: Serve) -> None:
    """For good: the request has arrived, and the next answer would be as long."""
    answer = post(serve(lambda message, context: bytes(5_000_000)))
    assert not answer.is_success
    assert not is_retryable(answer)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("CANCELLED", 503),
        ("DEADLINE_EXCEEDED", 504),
        ("ABORTED", 503),
        ("OUT_OF_RANGE", 503),
        ("UNAVAILABLE", 503),
        ("DATA_LOSS", 503),
        ("INVALID_ARGUMENT", 400),
        ("UNAUTHENTICATED", 401),
        ("PERMISSION_DENIED", 403),
        ("UNIMPLEMENTED", 404),
        ("RESOURCE_EXHAUSTED", 413),
        ("INTERNAL", 500),
        ("UNKNOWN", 500),
    ],
)
def test_every_code_of_grpc_has_its_status(serve: Serve, code: str, status: int) -> None:
    """What OTLP calls retryable is retried, and nothing else. The words are kept for the log."""
    answer = post(serve(aborting(code, (("server", "other"),))))
    assert (answer.status, answer.error) == (status, f"{code}: in so many words")
    assert is_retryable(answer) == (status in {503, 504})


@pytest.mark.parametrize(
    ("code", "status"), [("UNAVAILABLE", 503), ("RESOURCE_EXHAUSTED", 429), ("ABORTED", 503)]
)
def test_retry_info_is_honoured(serve: Serve, code: str, status: int) -> None:
    """With it, an exhausted server is one to come back to. Parts of a second are rounded up."""
    answer = post(serve(aborting(code, retry_info(6, nanos=1))))
    assert (answer.status, answer.retry_after_s) == (status, 7.0)
    assert is_retryable(answer)


@pytest.mark.parametrize("details", [b"\xff\xff", Status(code=8).SerializeToString(), b""])
def test_details_without_retry_info_are_none(serve: Serve, details: bytes) -> None:
    """Whatever a proxy put there."""
    answer = post(serve(aborting("RESOURCE_EXHAUSTED", (("grpc-status-details-bin", details),))))
    assert (answer.status, answer.retry_after_s) == (413, None)


def test_an_unavailable_server_that_asks_for_nothing_counts_as_nobody(serve: Serve) -> None:
    """It looks the same as a connection that failed, so the next sign of life ends the wait."""
    assert post(serve(aborting("UNAVAILABLE"))).status == NO_ANSWER


def test_a_client_works_again_after_a_lost_connection(sink: CapturedRequests) -> None:
    """At once, with a fresh connection: gRPC's own wait would last up to two minutes."""
    client = GrpcClient(sink.url, TRACES)
    assert client.post(b"", content_type=TYPE).is_success
    for _ in range(5):
        sink.behaviour.drops_connections = True
        assert client.post(b"", content_type=TYPE).status == NO_ANSWER
        sink.behaviour.drops_connections = False
        assert client.post(b"", content_type=TYPE).is_success


def test_a_closed_client_opens_a_fresh_connection(sink: CapturedRequests) -> None:
    """Closing twice is allowed."""
    client = GrpcClient(sink.url, TRACES)
    client.close()
    assert client.post(b"", content_type=TYPE).is_success
    client.close()
    client.close()
    assert client.post(b"", content_type=TYPE).is_success


def test_a_metadata_name_that_grpc_does_not_know_is_an_answer(sink: CapturedRequests) -> None:
    """configure() has refused it before; the thread must live all the same."""
    assert not post(sink.url, headers={"a b": "c"}).is_success


@pytest.mark.parametrize("option", ["ca_file", "client_cert_file"])
def test_a_missing_certificate_is_an_answer(option: str) -> None:
    """It is not found before the first request, and must not end the thread."""
    answer = post("https://127.0.0.1:1", **{option: "/nowhere.pem"})
    assert answer.status == NO_ANSWER
    assert "/nowhere.pem" in answer.error


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for localhost, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    return make_certificate(folder, days=1, untried="TLS over gRPC")


@pytest.mark.parametrize(
    "own",
    [
        {"client_cert_file": "cert.pem", "client_key_file": "key.pem"},
        {"client_cert_file": "both.pem"},
    ],
    ids=["two files", "one file"],
)
def test_both_sides_may_show_certificates(
    serve: Serve, certificate: Path, own: dict[str, str]
) -> None:
    """TLS with an authority of one's own, and a server that wants to know its clients."""
    cert = (certificate / "cert.pem").read_bytes()
    pair = ((certificate / "key.pem").read_bytes(), cert)
    url = serve(lambda m, c: b"", grpc.ssl_server_credentials([pair], cert, True))
    ca_file = str(certificate / "cert.pem")
    files = {name: str(certificate / file) for name, file in own.items()}
    assert post(url, ca_file=ca_file, **files).is_success
    assert post(url, ca_file=ca_file).status == NO_ANSWER
    assert post(url, **files).status == NO_ANSWER


def test_without_grpcio_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """At configure(), not at the first request."""
    monkeypatch.setattr(transport, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'otel-straggler\[grpc\]'"):
        GrpcClient("http://127.0.0.1:1", TRACES)


LOADED_BEFORE = """
import os, grpc
from otel_straggler.otlp.clients.grpc import GrpcClient
GrpcClient("http://127.0.0.1:1", "/a/b")
"""
LOADED_BY_US = """
import os
from otel_straggler.otlp.clients.grpc import GrpcClient
GrpcClient("http://127.0.0.1:1", "/a/b")
GrpcClient("http://127.0.0.1:1", "/a/b")
assert "GRPC_ENABLE_FORK_SUPPORT" not in os.environ
"""


@pytest.mark.parametrize(
    ("program", "variable", "expected"),
    [
        (LOADED_BEFORE, None, "Start the program with GRPC_ENABLE_FORK_SUPPORT=0"),
        (LOADED_BEFORE, "0", ""),
        (LOADED_BY_US, "1", "Start the program with GRPC_ENABLE_FORK_SUPPORT=0"),
        (LOADED_BY_US, None, ""),
    ],
)
def test_grpc_with_fork_handlers_is_refused_with_the_way_out(
    program: str, variable: str | None, expected: str
) -> None:
    """Workers of a DataLoader could crash. If we load gRPC, we load it without them, and leave
    the environment as it was."""
    env = {} if variable is None else {"GRPC_ENABLE_FORK_SUPPORT": variable}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert (expected in ended.stderr) if expected else (ended.returncode == 0), ended.stderr
