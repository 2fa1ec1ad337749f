"""Passwords and keys of URLs and headers are in no log line, error, finding, or representation."""

from __future__ import annotations

import logging

import pytest

from otel_straggler.client.endpoints import resolve_endpoints
from otel_straggler.client.process import _differences
from otel_straggler.client.sender import log_loss, log_recovery, log_rejection, log_retry
from otel_straggler.client.settings import resolve_settings
from otel_straggler.doctor.findings import problem
from otel_straggler.doctor.identity import Identity
from otel_straggler.doctor.settings import resolve_target
from otel_straggler.errors import ConfigError, StragglerError
from otel_straggler.otlp.clients.addresses import address_of
from otel_straggler.otlp.clients.client import Response
from otel_straggler.secret import Secret, redacted, reveal, without_path, without_secrets

SECRETS = ("pa55", "k3y", "t0ken")
URL = "http://me:pa55@gw:4318/v1/traces?api_key=k3y&x=t0ken"


def is_clean(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, "http://***@gw:4318/v1/traces?api_key=***&x=***"),
        (
            f"got {URL!r}; expected",
            "got 'http://***@gw:4318/v1/traces?api_key=***&x=***'; expected",
        ),
        ("https://t0ken@gw", "https://***@gw"),
        ("http://me:p@pa55@gw/x", "http://***@gw/x"),
        ("me:pa55@gw:4317", "***@gw:4317"),
        ("http://gw:4318/v1/traces", "http://gw:4318/v1/traces"),
        ("mail someone@example.org: it failed", "mail someone@example.org: it failed"),
        ("a?b=c is no URL", "a?b=c is no URL"),
    ],
)
def test_a_url_shows_neither_user_nor_query(text: str, shown: str) -> None:
    """The rest stands as it was."""
    assert without_secrets(text) == shown


def test_lines_of_a_training_process_have_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """Loss, retries, refusals, and recovery name the endpoint."""
    caplog.set_level(logging.DEBUG)
    log_loss(URL, 1)
    for log in (log_recovery, log_retry, log_rejection):
        log(URL, Response(503))
    assert len(caplog.messages) == 4
    assert all("gw:4318" in message for message in caplog.messages)
    assert is_clean(caplog.text)


def test_errors_and_findings_have_no_secrets() -> None:
    """Wherever they come from."""
    for error in (ConfigError.of("x", URL, "y", URL), StragglerError(URL)):
        assert is_clean(str(error))
    finding = problem("a.b", f"{URL} is away.", f"export X={URL}", {"url": [URL]})
    assert is_clean(repr(finding))
    assert finding.value == {"url": [redacted(URL)]}
    assert without_path("https://me:pa55@hooks.example/services/t0ken") == (
        "https://hooks.example/***"
    )


@pytest.mark.parametrize("endpoint", [URL, "ftp://me:pa55@gw", "me:pa55@gw:x"])
def test_a_wrong_or_right_endpoint_has_no_secret_in_what_the_doctor_says(endpoint: str) -> None:
    """An address that is refused is shown, too."""
    identity = Identity(run_id="r", run_id_where="", numbers={}, is_one_node=True)
    target, findings = resolve_target({}, endpoint, None, identity)
    assert is_clean(repr(findings))
    assert target is not None or findings


def test_values_of_headers_print_as_asterisks_and_are_sent_whole() -> None:
    """In every form in which Python prints."""
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20t0ken"}
    settings = resolve_settings({"endpoint": "http://gw:4318", "run_id": "r"}, env)
    endpoint = resolve_endpoints(env, "http://gw:4318", None, None).traces
    [(name, value)] = endpoint.headers
    assert (name, reveal(value), value == "Bearer t0ken") == ("authorization", "Bearer t0ken", True)
    assert f"{value} {value!s} {value!r} {value:>5}" == "*** *** *** ***"
    assert is_clean(repr(settings) + repr(endpoint) + str(endpoint.headers))
    assert b"authorization: Bearer t0ken\r\n" in address_of(endpoint)[2]


def test_a_second_configure_names_no_secret() -> None:
    """It says what it would have changed."""
    before = resolve_settings({"endpoint": "http://a:4318", "run_id": "r"}, {})
    after = resolve_settings({"endpoint": "http://b:4318/?key=k3y", "run_id": "r"}, {})
    assert is_clean(" ".join(_differences(before, after)))
    assert Secret("t0ken") == "t0ken"
