"""Where telemetry goes, from arguments and environment.

Addresses are in ``addresses.py``, protocols in ``protocols.py``. A wrong argument or
``OTEL_STRAGGLER_*`` variable is an error; a wrong ``OTEL_*`` variable belongs to others and is
logged and ignored, as OpenTelemetry's specification asks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from otel_straggler.config import DEFAULT_ENDPOINT, Compression, Endpoint, OtlpProtocol, Pairs
from otel_straggler.errors import ConfigError, describe
from otel_straggler.instrument.addresses import find_address, own_address
from otel_straggler.instrument.protocols import choose_protocols

_LOG = logging.getLogger("otel_straggler")
_PREFIX = "OTEL_EXPORTER_OTLP_"
_METADATA_NAME = re.compile(r"(?!grpc-)[a-z0-9_.-]+(?<!-bin)")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Both signals, and whether the user said that the other side scores."""

    traces: Endpoint
    metrics: Endpoint
    is_trusted: bool


def resolve_endpoints(
    env: Mapping[str, str],
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    protocol: str | None = None,
    *,
    is_used: bool = True,
) -> Endpoints:
    """Settle both endpoints; ``is_used`` says whether anything will be sent.

    Raises:
        ConfigError: an argument or an ``OTEL_STRAGGLER_*`` variable is wrong.
    """
    own = own_address(env, endpoint)
    protocols = choose_protocols(env, protocol, own.port if own else None, is_used=is_used)
    own_headers = _own_headers(env, headers)

    def settled(signal: str) -> Endpoint:
        chosen = protocols[signal].protocol
        url = find_address(signal, env, own, chosen).url
        return _endpoint(signal, chosen, url, env, own_headers)

    return Endpoints(
        traces=settled("TRACES"), metrics=settled("METRICS"), is_trusted=own is not None
    )


def names_scorer(env: Mapping[str, str], endpoint: str | None) -> bool:
    """Whether the user named a collector that scores."""
    return endpoint is not None or bool(env.get("OTEL_STRAGGLER_ENDPOINT", "").strip())


NO_ENDPOINTS = Endpoints(
    traces=Endpoint(url=DEFAULT_ENDPOINT + "/v1/traces", is_enabled=False),
    metrics=Endpoint(url=DEFAULT_ENDPOINT + "/v1/metrics", is_enabled=False),
    is_trusted=False,
)
"""Nothing is sent by us."""


def parse_pairs(text: str) -> dict[str, str]:
    """Read ``key=value,key=value`` with percent-encoded values.

    >>> parse_pairs("authorization=Bearer%20abc, x=1,broken")
    {'authorization': 'Bearer abc', 'x': '1'}
    """
    pairs = (item.split("=", 1) for item in text.split(",") if "=" in item)
    return {unquote(k.strip()): unquote(v.strip()) for k, v in pairs if k.strip()}


def _endpoint(
    signal: str,
    protocol: OtlpProtocol,
    url: str,
    env: Mapping[str, str],
    own_headers: dict[str, str] | None,
) -> Endpoint:
    return Endpoint(
        url=url,
        protocol=protocol,
        headers=_headers(signal, env, own_headers, protocol),
        timeout_s=_timeout_s(signal, env),
        compression=_compression(signal, env),
        ca_file=_either(signal, "CERTIFICATE", env),
        client_cert_file=_either(signal, "CLIENT_CERTIFICATE", env),
        client_key_file=_either(signal, "CLIENT_KEY", env),
        is_enabled=env.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() != "none",
    )


def _own_headers(
    env: Mapping[str, str], headers: Mapping[str, str] | None
) -> dict[str, str] | None:
    if headers is not None:
        return _checked_headers(headers, "configure(headers=...)")
    text = env.get("OTEL_STRAGGLER_HEADERS")
    if text is None:
        return None
    if any(item.strip() and "=" not in item for item in text.split(",")):
        message = describe(
            where="OTEL_STRAGGLER_HEADERS",
            value="a part without '='",
            expected="name=value,name=value with %2C for a comma in it (values are not shown here)",
            remedy="Use for example authorization=Bearer%20TOKEN.",
        )
        raise ConfigError(message)
    return _checked_headers(parse_pairs(text), "OTEL_STRAGGLER_HEADERS")


def _checked_headers(headers: object, where: str) -> dict[str, str]:
    if isinstance(headers, Mapping) and all(_is_header(k, v) for k, v in headers.items()):
        return dict(headers)
    names = sorted(map(str, headers)) if isinstance(headers, Mapping) else headers
    message = describe(
        where=where,
        value=names,
        expected="texts by name, each on one line of ASCII (values are not shown here)",
        remedy="Use for example {'authorization': 'Bearer ...'}.",
    )
    raise ConfigError(message)


def _is_header(name: object, value: object) -> bool:
    if not (isinstance(name, str) and isinstance(value, str) and name):
        return False
    text = name + value
    return text.isascii() and text.isprintable() and ":" not in name and " " not in name


def _headers(
    signal: str,
    env: Mapping[str, str],
    own: dict[str, str] | None,
    protocol: OtlpProtocol,
) -> Pairs:
    if own is not None:
        return tuple(sorted(_as_metadata(own).items() if protocol == "grpc" else own.items()))
    both = {
        **parse_pairs(env.get(f"{_PREFIX}HEADERS", "")),
        **parse_pairs(env.get(f"{_PREFIX}{signal}_HEADERS", "")),
    }
    fits = _is_metadata if protocol == "grpc" else _is_header
    return tuple(sorted((k, v) for k, v in both.items() if fits(k, v)))


def _as_metadata(headers: dict[str, str]) -> dict[str, str]:
    """The same, if gRPC can carry them.

    Raises:
        ConfigError: a name is not one for gRPC.
    """
    wrong = sorted(name for name, value in headers.items() if not _is_metadata(name, value))
    if wrong:
        message = describe(
            where="headers for gRPC",
            value=wrong,
            expected="names of letters, digits, '_', '-' and '.', not grpc-... and not ...-bin",
            remedy="Rename them, or use http/protobuf.",
        )
        raise ConfigError(message)
    return headers


def _is_metadata(name: str, value: str) -> bool:
    return _is_header(name, value) and _METADATA_NAME.fullmatch(name.lower()) is not None


def _either(signal: str, name: str, env: Mapping[str, str]) -> str:
    return (env.get(f"{_PREFIX}{signal}_{name}") or env.get(f"{_PREFIX}{name}") or "").strip()


def _timeout_s(signal: str, env: Mapping[str, str]) -> float:
    """Milliseconds, by OpenTelemetry's specification."""
    text = _either(signal, "TIMEOUT", env)
    try:
        timeout_ms = float(text or 10_000)
    except ValueError:
        timeout_ms = -1.0
    if timeout_ms > 0:
        return timeout_ms / 1000
    _ignore(f"{_PREFIX}TIMEOUT", text, "milliseconds above 0")
    return 10.0


def _compression(signal: str, env: Mapping[str, str]) -> Compression:
    text = _either(signal, "COMPRESSION", env).lower() or "none"
    if text == "gzip":
        return "gzip"
    if text != "none":
        _ignore(f"{_PREFIX}COMPRESSION", text, "gzip or none")
    return "none"


def _ignore(variable: str, value: str, expected: str) -> None:
    remedy = "It is ignored; correct or unset it."
    _LOG.warning("%s", describe(where=variable, value=value, expected=expected, remedy=remedy))
