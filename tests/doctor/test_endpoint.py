"""The way to the endpoint and what answers there: one real server for each finding."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_straggler.doctor.findings import Finding
from otel_straggler.testing import CapturedRequests

from ..servers.certificate import make_certificate

Examine = Callable[..., dict[str, Finding]]
Serve = Callable[..., str]


def test_a_collector_is_reached_and_scores(examined: Examine, collector: dict[str, str]) -> None:
    """Over HTTP."""
    result = examined(endpoint=collector["otlp_http"])
    for name in ("endpoint.tcp", "endpoint.traces", "endpoint.metrics", "endpoint.scorer"):
        assert result[name].status == "ok", result[name]
    assert result["clock.skew"].status == "ok"


def test_a_collector_is_reached_over_grpc(examined: Examine, collector: dict[str, str]) -> None:
    """And says there too that it scores; it sends no Date, so the metrics address is asked."""
    result = examined(endpoint=collector["otlp_grpc"], protocol="grpc")
    for name in ("endpoint.traces", "endpoint.metrics", "endpoint.scorer"):
        assert result[name].status == "ok", result[name]
    assert result["clock.skew"].status == "info"
    result = examined(
        endpoint=collector["otlp_grpc"], protocol="grpc", collector=collector["metrics"]
    )
    assert result["clock.skew"].status == "ok"


def test_nobody_listening_is_a_problem(examined: Examine) -> None:
    """With the command that starts a collector."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        finding = examined(endpoint=f"http://127.0.0.1:{port}")["endpoint.tcp"]
    assert (finding.status, finding.sentence) == (
        "problem", f"Nothing listens on port {port} of 127.0.0.1.",
    )  # fmt: skip
    assert finding.remedy.startswith("otel-straggler collector")


def test_a_name_without_an_address_is_a_problem(examined: Examine) -> None:
    """The rest of the way is not walked."""
    result = examined(endpoint="http://no-such-host.invalid:4318")
    assert result["endpoint.dns"].status == "problem"
    assert "endpoint.traces" not in result


def test_a_name_is_shown_with_its_addresses(examined: Examine, collector: dict[str, str]) -> None:
    """The wrong machine has been asked before."""
    result = examined(endpoint=collector["otlp_http"].replace("127.0.0.1", "localhost"))
    assert "127.0.0.1" in result["endpoint.dns"].value


def test_the_address_of_the_page_is_no_endpoint(
    examined: Examine, collector: dict[str, str]
) -> None:
    """It answers like a collector, and takes nothing."""
    finding = examined(endpoint=collector["metrics"])["endpoint.traces"]
    assert finding.status == "problem"
    assert "is the address of a collector's page and metrics" in finding.sentence
    assert finding.remedy == "export OTEL_STRAGGLER_ENDPOINT=http://127.0.0.1:4318"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_black_hole_is_a_problem(examined: Examine, black_hole: str, protocol: str) -> None:
    """It takes the connection and says nothing; the doctor waits no longer than told."""
    finding = examined(endpoint=black_hole, protocol=protocol, timeout_s=0.3)["endpoint.traces"]
    assert finding.status == "problem"
    assert "did not answer" in finding.sentence


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_a_problem(examined: Examine, serve: Serve, status: int) -> None:
    """The names of the headers that were sent are shown, their values never."""
    env = {"OTEL_STRAGGLER_HEADERS": "authorization=Bearer%20s3cret"}
    result = examined(env, endpoint=serve(status=status))
    finding = result["endpoint.auth"]
    assert finding.status == "problem"
    assert "Headers sent: authorization." in finding.sentence
    assert finding.remedy.startswith("export OTEL_STRAGGLER_HEADERS=")
    assert "s3cret" not in str(result)


@pytest.fixture
def grpc_refusing() -> Iterator[str]:
    """A gRPC server that lets nobody in."""

    class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                lambda message, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "who?")
            )

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Handlers()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop(0).wait()


def test_a_refused_token_over_grpc_is_a_problem(examined: Examine, grpc_refusing: str) -> None:
    """UNAUTHENTICATED."""
    finding = examined(endpoint=grpc_refusing, protocol="grpc")["endpoint.auth"]
    assert "UNAUTHENTICATED: who?" in finding.sentence


@pytest.mark.parametrize(
    ("answer", "status", "expected"),
    [
        ({"status": 404}, "problem", "answered 404"),
        ({"status": 503}, "warning", "answered 503"),
        ({"status": 307, "headers": {"Location": "http://b:1/v1/traces"}}, "problem", "redirects"),
        ({"headers": {"Content-Type": "text/html"}, "body": b"<html>"}, "problem", "web page"),
    ],
)
def test_what_is_no_otlp_endpoint_is_told(
    examined: Examine, serve: Serve, answer: dict[str, Any], status: str, expected: str
) -> None:
    """By what it answers."""
    finding = examined(endpoint=serve(**answer))["endpoint.traces"]
    assert finding.status == status
    assert expected in finding.sentence
    if expected == "redirects":
        assert finding.remedy == "export OTEL_STRAGGLER_ENDPOINT=http://b:1"


@pytest.mark.parametrize("by", ["argument", "variable of OpenTelemetry"])
def test_a_plain_backend_is_no_scorer(examined: Examine, by: str) -> None:
    """Whether it would get every span or a sample depends on who named it."""
    with CapturedRequests() as backend:
        backend.behaviour.is_scorer = False
        if by == "argument":
            result = examined(endpoint=backend.url)
        else:
            result = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": backend.url})
    assert result["endpoint.traces"].status == "ok"
    finding = result["endpoint.scorer"]
    assert finding.status == "warning"
    assert ("it gets every span" in finding.sentence) == (by == "argument")


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_other_protocol_on_the_port_is_found_out(
    examined: Examine, collector: dict[str, str], protocol: str
) -> None:
    """By asking in it; the remedy is the one variable to set."""
    url = collector["otlp_http" if protocol == "grpc" else "otlp_grpc"]
    other = "http/protobuf" if protocol == "grpc" else "grpc"
    finding = examined(endpoint=url, protocol=protocol)["endpoint.traces"]
    assert finding.status == "problem"
    assert finding.sentence.endswith(f" speaks {other}, not {protocol}.")
    assert finding.remedy == f"export OTEL_STRAGGLER_PROTOCOL={other}"


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_proxy_that_nobody_thought_of_is_told(
    examined: Examine, collector: dict[str, str], variable: str
) -> None:
    """A cluster's image sets it, and no_proxy lacks the collector."""
    env = {variable: "http://user:s3cret@127.0.0.1:1"}
    result = examined(env, endpoint=collector["otlp_http"])
    assert result["endpoint.proxy"].status == "warning"
    assert 'export no_proxy="${no_proxy:+$no_proxy,}127.0.0.1"' in result["endpoint.proxy"].remedy
    failed = result["endpoint.traces"]
    assert failed.status == "problem"
    assert f"through the proxy of {variable}" in failed.sentence
    assert failed.remedy == result["endpoint.proxy"].remedy
    assert "s3cret" not in str(result)


def test_no_proxy_is_honoured(examined: Examine, collector: dict[str, str]) -> None:
    """Then nothing is said of it."""
    env = {"http_proxy": "http://127.0.0.1:1", "no_proxy": "a,127.0.0.1"}
    result = examined(env, endpoint=collector["otlp_http"])
    assert "endpoint.proxy" not in result
    assert result["endpoint.traces"].status == "ok"


def test_grpc_has_a_proxy_variable_of_its_own(examined: Examine, collector: dict[str, str]) -> None:
    """grpc_proxy."""
    env = {"grpc_proxy": "http://127.0.0.1:1"}
    result = examined(env, endpoint=collector["otlp_grpc"], protocol="grpc", timeout_s=0.5)
    assert result["endpoint.proxy"].value["variable"] == "grpc_proxy"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that ends in three days, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    return make_certificate(folder, days=3, untried="what the doctor says of TLS")


@pytest.fixture
def tls_port(certificates: Path) -> Iterator[int]:
    """A server that only shakes hands."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def shake_hands() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                with context.wrap_socket(connection, server_side=True):
                    pass
            except ssl.SSLError:
                continue
            except OSError:
                return

    thread = threading.Thread(target=shake_hands, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def test_a_certificate_that_nobody_trusts_is_a_problem(examined: Examine, tls_port: int) -> None:
    """With the variable for the authority's file."""
    finding = examined(endpoint=f"https://localhost:{tls_port}")["endpoint.tls"]
    assert finding.status == "problem"
    assert "self-signed" in finding.sentence or "self signed" in finding.sentence
    assert finding.remedy.startswith("export OTEL_EXPORTER_OTLP_CERTIFICATE=")


def test_a_certificate_that_ends_soon_is_a_warning(
    examined: Examine, tls_port: int, certificates: Path
) -> None:
    """Trusted, with its last days told."""
    env = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificates / "cert.pem")}
    finding = examined(env, endpoint=f"https://localhost:{tls_port}")["endpoint.tls"]
    assert finding.status == "warning"
    assert 2 <= finding.value["days_left"] <= 3


def test_a_missing_file_for_tls_is_a_problem(examined: Examine, tls_port: int) -> None:
    """Named."""
    env = {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"}
    finding = examined(env, endpoint=f"https://localhost:{tls_port}")["endpoint.tls"]
    assert finding.status == "problem"
    assert "/nowhere.pem" in finding.sentence


def test_each_file_for_tls_has_its_variable(
    examined: Examine, tls_port: int, certificates: Path
) -> None:
    """The one that is missing, is no certificate, or does not fit, is told how to be named."""
    trusted = str(certificates / "cert.pem")
    key = str(certificates / "key.pem")
    name = "OTEL_EXPORTER_OTLP_"
    trust = {f"{name}CERTIFICATE": trusted}
    for env, remedy in (
        ({f"{name}CERTIFICATE": key}, f"openssl x509 -noout -subject -in {key}"),
        (trust | {f"{name}CLIENT_CERTIFICATE": "/own.pem"}, f"export {name}CLIENT_CERTIFICATE="),
        (
            trust | {f"{name}CLIENT_CERTIFICATE": trusted, f"{name}CLIENT_KEY": "/own.key"},
            f"export {name}CLIENT_KEY=",
        ),
    ):
        finding = examined(env, endpoint=f"https://localhost:{tls_port}")["endpoint.tls"]
        assert (finding.status, finding.remedy[: len(remedy)]) == ("problem", remedy)


def test_a_port_without_tls_is_a_problem(examined: Examine, collector: dict[str, str]) -> None:
    """https:// where http:// is spoken."""
    url = collector["otlp_http"].replace("http:", "https:")
    finding = examined(endpoint=url)["endpoint.tls"]
    assert finding.status == "problem"
    assert finding.remedy == "Begin the endpoint with http://"
