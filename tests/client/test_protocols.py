"""HTTP or gRPC: who decides, and what an address looks like for each."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from otel_straggler.client.settings import resolve_settings
from otel_straggler.config import ClientSettings
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients import grpc as transport

PREFIX = "OTEL_EXPORTER_OTLP_"
GRPC = {PREFIX + "PROTOCOL": "grpc"}


def settings(env: dict[str, str] | None = None, **given: Any) -> ClientSettings:
    return resolve_settings(given, env or {})


def protocols(result: ClientSettings) -> tuple[str, str]:
    return result.traces.protocol, result.metrics.protocol


@pytest.mark.parametrize(
    ("env", "argument", "expected"),
    [
        ({}, None, ("http/protobuf", "http/protobuf")),
        (GRPC, None, ("grpc", "grpc")),
        ({PREFIX + "TRACES_PROTOCOL": "grpc"}, None, ("grpc", "http/protobuf")),
        ({**GRPC, PREFIX + "METRICS_PROTOCOL": "http/protobuf"}, None, ("grpc", "http/protobuf")),
        ({**GRPC, "OTEL_STRAGGLER_PROTOCOL": "http/protobuf"}, None, ("http/protobuf",) * 2),
        ({"OTEL_STRAGGLER_PROTOCOL": "grpc"}, None, ("grpc", "grpc")),
        ({"OTEL_STRAGGLER_PROTOCOL": "grpc"}, "http/protobuf", ("http/protobuf",) * 2),
    ],
)
def test_the_protocol_is_found_in_order(
    env: dict[str, str], argument: str | None, expected: tuple[str, str]
) -> None:
    """Argument, our variable, the signal's, the common one."""
    assert protocols(settings(env, protocol=argument)) == expected


@pytest.mark.parametrize(
    ("env", "given", "url"),
    [
        ({}, None, "http://localhost:4317"),
        ({"OTEL_STRAGGLER_ENDPOINT": "https://d:1/"}, None, "https://d:1"),
        ({"OTEL_STRAGGLER_ENDPOINT": "d:1"}, None, "https://d:1"),
        ({PREFIX + "INSECURE": "true"}, "[::1]:4317", "http://[::1]:4317"),
        ({PREFIX + "ENDPOINT": "http://b:1/x/"}, None, "http://b:1"),
        ({PREFIX + "ENDPOINT": "b:1"}, None, "https://b:1"),
        ({PREFIX + "ENDPOINT": "b:1", PREFIX + "INSECURE": "TRUE"}, None, "http://b:1"),
        (
            {PREFIX + "TRACES_ENDPOINT": "c:2", PREFIX + "TRACES_INSECURE": "true"},
            None,
            "http://c:2",
        ),
        ({PREFIX + "ENDPOINT": "https://b:1", PREFIX + "INSECURE": "true"}, None, "https://b:1"),
    ],
)
def test_an_address_for_grpc_has_no_path(env: dict[str, str], given: str | None, url: str) -> None:
    """As OpenTelemetry has it: the scheme decides on TLS; without one OTEL_..._INSECURE does."""
    assert settings(env, endpoint=given, protocol="grpc").traces.url == url


@pytest.mark.parametrize("endpoint", ["http://d:1/v1/traces", "grpc://d:1", "http://", ":1", 4317])
def test_a_wrong_address_for_grpc_is_an_error(endpoint: Any) -> None:
    """With an example of a right one."""
    with pytest.raises(ConfigError, match=re.escape("example http://localhost:4317.")) as caught:
        settings(endpoint=endpoint, protocol="grpc")
    assert str(caught.value).startswith("configure(endpoint=...): got ")


def test_a_wrong_address_of_others_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning; the default is used."""
    assert settings({**GRPC, PREFIX + "ENDPOINT": "unix:/x"}).traces.url == "http://localhost:4317"
    assert PREFIX + "ENDPOINT" in caplog.text


@pytest.mark.parametrize("value", ["http/json", "thrift"])
def test_a_protocol_of_others_that_we_do_not_speak_is_told_once(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be meant for another program, so http/protobuf is used."""
    assert protocols(settings({PREFIX + "PROTOCOL": value})) == ("http/protobuf", "http/protobuf")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"{PREFIX}PROTOCOL is {value!r}" in record.getMessage()


@pytest.mark.parametrize(
    ("env", "argument", "where"),
    [
        ({}, "http/json", "configure(protocol=...): got 'http/json'"),
        ({"OTEL_STRAGGLER_PROTOCOL": "gprc"}, None, "OTEL_STRAGGLER_PROTOCOL: got 'gprc'"),
    ],
)
def test_a_wrong_protocol_of_ours_is_an_error(
    env: dict[str, str], argument: str | None, where: str
) -> None:
    """At configure()."""
    with pytest.raises(ConfigError, match=re.escape(where)):
        settings(env, protocol=argument)


def test_a_protocol_of_others_does_not_turn_an_http_port_into_grpc(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody who names port 4318 to us means gRPC; on any other port the variable counts."""
    assert settings(GRPC, endpoint="http://d:4318").traces.url == "http://d:4318/v1/traces"
    assert "OTEL_STRAGGLER_PROTOCOL settles" in caplog.text
    assert settings(GRPC, endpoint="http://d:4317").traces.url == "http://d:4317"
    assert settings(endpoint="http://d:4318", protocol="grpc").traces.url == "http://d:4318"


def test_without_grpcio_our_own_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """That names the extra; unless telemetry is switched off."""
    monkeypatch.setattr(transport, "find_spec", lambda name: None)
    expected = re.escape("configure(protocol=...): got 'grpc', but grpcio is not installed. "
                         "Run: pip install 'otel-straggler[grpc]'.")  # fmt: skip
    with pytest.raises(ConfigError, match=expected):
        settings(protocol="grpc")
    assert settings({"OTEL_STRAGGLER_DISABLED": "1"}, protocol="grpc").is_disabled


def test_without_grpcio_a_variable_of_others_is_told_and_not_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that sets it for another program still starts."""
    monkeypatch.setattr(transport, "find_spec", lambda name: None)
    assert protocols(settings(GRPC)) == ("http/protobuf", "http/protobuf")
    (record,) = caplog.records
    assert "pip install 'otel-straggler[grpc]'" in record.getMessage()


@pytest.mark.parametrize("name", ["x y", "grpc-timeout", "token-bin", "a/b"])
def test_a_header_that_grpc_cannot_carry_is_an_error(name: str) -> None:
    """Ours, that is; those of others are left out."""
    with pytest.raises(ConfigError):
        settings(headers={name: "v"}, protocol="grpc")
    env = {PREFIX + "HEADERS": f"{name.replace(' ', '%20')}=v,Authorization=b"}
    assert dict(settings(env, protocol="grpc").traces.headers) == {"Authorization": "b"}
