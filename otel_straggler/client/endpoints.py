"""The endpoints and protocols of telemetry, from arguments and environment.

Addresses: argument > ``OTEL_STRAGGLER_ENDPOINT`` > ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` and
``..._METRICS_ENDPOINT`` > ``OTEL_EXPORTER_OTLP_ENDPOINT`` > what rank 0 shares (``discovery.py``) >
this machine. HTTP takes a URL with a
path; gRPC takes scheme, host and port, and ``host:port`` alone, for which
``OTEL_EXPORTER_OTLP_INSECURE`` says whether it is without TLS. Protocols and headers have the same
order.

A wrong argument or ``OTEL_STRAGGLER_*`` variable is an error; a wrong ``OTEL_*`` variable belongs
to others and is logged and ignored, as OpenTelemetry's specification asks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from otel_straggler.config import (
    DEFAULT_ENDPOINT,
    DEFAULT_GRPC_ENDPOINT,
    Compression,
    Endpoint,
    OtlpProtocol,
)
from otel_straggler.errors import ConfigError, describe
from otel_straggler.secret import Secret
from otel_straggler.setting import Pairs

if TYPE_CHECKING:
    from otel_straggler.otlp.clients.client import Signal

_LOG = logging.getLogger("otel_straggler")
_PREFIX = "OTEL_EXPORTER_OTLP_"
_PATHS = {"TRACES": "/v1/traces", "METRICS": "/v1/metrics"}
_HTTP_PORT = 4318
_METADATA_NAME = re.compile(r"(?!grpc-)[a-z0-9_.-]+(?<!-bin)")
_EXPECTED = {
    "http/protobuf": "a URL that begins with http:// or https://",
    "grpc": "a URL that begins with http:// or https:// and has no path (gRPC has none)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Both signals.

    Attributes:
        is_trusted: the user said that the other side scores.
        where, protocol_where: the argument or variable that named address and protocol, by signal
            ("traces", "metrics"); empty = the default.
    """

    traces: Endpoint
    metrics: Endpoint
    is_trusted: bool
    where: Mapping[str, str] = field(default_factory=dict)
    protocol_where: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_signal(self) -> dict[Signal, Endpoint]:
        return {"traces": self.traces, "metrics": self.metrics}


class _Named(NamedTuple):
    """A value, and the argument or variable that named it; empty = the default."""

    value: str
    where: str = ""


def resolve_endpoints(
    env: Mapping[str, str],
    endpoint: object = None,
    headers: Mapping[str, str] | None = None,
    protocol: str | None = None,
    *,
    is_used: bool = True,
) -> Endpoints:
    """Settle both endpoints. Where nothing is sent (``is_used``), a missing package is no error.

    Raises:
        ConfigError: an argument or an ``OTEL_STRAGGLER_*`` variable is wrong.
    """
    own = _own_address(env, endpoint)
    protocols = _protocols(env, protocol, own, is_used=is_used)
    own_headers = _own_headers(env, headers)
    addresses = {s: _address(s, env, own, protocols[s].value) for s in _PATHS}
    settled = {
        signal: Endpoint(
            url=addresses[signal].value,
            protocol="grpc" if chosen == "grpc" else "http/protobuf",
            headers=_headers(signal, env, own_headers, chosen),
            timeout_s=_timeout_s(signal, env),
            compression=_compression(signal, env),
            ca_file=_of_signal(signal, "CERTIFICATE", env),
            client_cert_file=_of_signal(signal, "CLIENT_CERTIFICATE", env),
            client_key_file=_of_signal(signal, "CLIENT_KEY", env),
            is_enabled=env.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() != "none",
        )
        for signal, (chosen, _) in protocols.items()
    }
    return Endpoints(
        traces=settled["TRACES"],
        metrics=settled["METRICS"],
        is_trusted=own is not None,
        where={signal.lower(): address.where for signal, address in addresses.items()},
        protocol_where={signal.lower(): chosen.where for signal, chosen in protocols.items()},
    )


def names_scorer(env: Mapping[str, str], endpoint: object) -> bool:
    return _own_address(env, endpoint) is not None


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


def is_url(text: str) -> bool:
    """Whether it is an address of HTTP or HTTPS with a host."""
    parts = _split(text) if "://" in text else None
    return parts is not None and parts.scheme in {"http", "https"}


def is_loopback_url(url: str) -> bool:
    """Whether a URL names this machine by a loopback name or address.

    >>> is_loopback_url("http://127.0.0.1:4318"), is_loopback_url("http://node-1:4318")
    (True, False)
    """
    host = (urlsplit(url).hostname or "").lower()
    return host in {"localhost", "::1"} or host.startswith("127.")


def _protocols(
    env: Mapping[str, str], argument: str | None, own: tuple[object, str] | None, *, is_used: bool
) -> dict[str, _Named]:
    """A wrong variable of others is logged, and http/protobuf is used."""
    where = "configure(protocol=...)" if argument is not None else "OTEL_STRAGGLER_PROTOCOL"
    value = argument if argument is not None else env.get(where, "").strip().lower() or None
    if value is None:
        parts = _split(own[0]) if own and isinstance(own[0], str) else None
        return _protocols_of_others(env, parts.port if parts else None)
    if value not in get_args(OtlpProtocol):
        raise ConfigError.of(
            where, value, "'http/protobuf' or 'grpc'", "Leave it out for http/protobuf."
        )
    if is_used and value == "grpc" and (reason := _why_no_grpc()):
        raise ConfigError(f"{where}: got 'grpc', but {reason}.")
    return dict.fromkeys(_PATHS, _Named(value, where))


def _protocols_of_others(env: Mapping[str, str], own_port: int | None) -> dict[str, _Named]:
    warnings: dict[str, None] = {}
    result = dict.fromkeys(_PATHS, _Named("http/protobuf"))
    for signal in result:
        names = (f"{_PREFIX}{signal}_PROTOCOL", f"{_PREFIX}PROTOCOL")
        named = ((env.get(name, "").strip().lower(), name) for name in names)
        value, where = next(((value, name) for value, name in named if value), ("", ""))
        if value and (trouble := _why_not(value, own_port)):
            warnings[f"{where} is {value!r}, but {trouble}. http/protobuf is used."] = None
        elif value:
            result[signal] = _Named(value, where)
    for warning in warnings:
        _LOG.warning("%s", warning)
    return result


def _why_not(protocol: str, own_port: int | None) -> str:
    if protocol == "http/protobuf":
        return ""
    if protocol != "grpc":
        return "otel-straggler sends http/protobuf or grpc"
    if own_port == _HTTP_PORT:
        return (
            f"port {_HTTP_PORT} of the endpoint is that of OTLP over HTTP; "
            "OTEL_STRAGGLER_PROTOCOL settles which is meant"
        )
    return _why_no_grpc()


def _why_no_grpc() -> str:
    from otel_straggler.otlp.clients.grpc import why_unusable

    return why_unusable()


def _own_address(env: Mapping[str, str], endpoint: object) -> tuple[object, str] | None:
    """The argument or ``OTEL_STRAGGLER_ENDPOINT`` as written, and which."""
    if endpoint is not None:
        return endpoint, "configure(endpoint=...)"
    named = env.get("OTEL_STRAGGLER_ENDPOINT", "").strip()
    return (named, "OTEL_STRAGGLER_ENDPOINT") if named else None


def _address(
    signal: str, env: Mapping[str, str], own: tuple[object, str] | None, protocol: str
) -> _Named:
    """A signal's own endpoint is used as it is; one for both gets the signal's path."""
    default = DEFAULT_GRPC_ENDPOINT if protocol == "grpc" else DEFAULT_ENDPOINT
    if own is not None:
        text, where = own
        parts = _split(text) if isinstance(text, str) else None
        has_path = protocol == "grpc" and parts is not None and parts.path not in {"", "/"}
        url = _url(text, signal, env, protocol, is_whole=False) if isinstance(text, str) else ""
        if url and not has_path:
            return _Named(url, where)
        raise ConfigError.of(where, text, _EXPECTED[protocol], f"Use for example {default}.")
    for where in (f"{_PREFIX}{signal}_ENDPOINT", f"{_PREFIX}ENDPOINT"):
        if not (text := env.get(where, "").strip()):
            continue
        if url := _url(text, signal, env, protocol, is_whole=signal in where):
            return _Named(url, where)
        _ignore(where, text, _EXPECTED["http/protobuf"])
    return _Named(_url(default, signal, env, protocol, is_whole=False))


def _url(text: str, signal: str, env: Mapping[str, str], protocol: str, *, is_whole: bool) -> str:
    """Empty if it is no address for this protocol."""
    if protocol == "grpc":
        return _grpc_url(text, signal, env)
    if not is_url(text):
        return ""
    return text if is_whole else text.rstrip("/") + _PATHS[signal]


def _grpc_url(text: str, signal: str, env: Mapping[str, str]) -> str:
    """Scheme, host and port; empty if it is no address.

    >>> _grpc_url("gateway:4317", "TRACES", {"OTEL_EXPORTER_OTLP_INSECURE": "true"})
    'http://gateway:4317'
    >>> _grpc_url("gateway:4317", "TRACES", {}), _grpc_url("http://a:1/x", "TRACES", {})
    ('https://gateway:4317', 'http://a:1')
    """
    if "://" not in text:
        parts = _split(text)
        if parts is None or parts.port is None or parts.path:
            return ""
        is_insecure = _of_signal(signal, "INSECURE", env).lower() == "true"
        text = f"{'http' if is_insecure else 'https'}://{text}"
    url = urlsplit(text) if is_url(text) else None
    return f"{url.scheme}://{url.netloc}" if url else ""


def _split(text: str) -> SplitResult | None:
    """The parts of a URL, or of ``host:port``; None if there is no host or the port is wrong."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:  # a port that is no number
        return None


def _own_headers(
    env: Mapping[str, str], headers: Mapping[str, str] | None
) -> dict[str, str] | None:
    if headers is not None:
        return _checked_headers(headers, "configure(headers=...)")
    text = env.get("OTEL_STRAGGLER_HEADERS")
    if text is None:
        return None
    if any(item.strip() and "=" not in item for item in text.split(",")):
        raise ConfigError.of(
            "OTEL_STRAGGLER_HEADERS",
            "a part without '='",
            "name=value,name=value with %2C for a comma in it (values are not shown here)",
            "Use for example authorization=Bearer%20TOKEN.",
        )
    return _checked_headers(parse_pairs(text), "OTEL_STRAGGLER_HEADERS")


def _checked_headers(headers: object, where: str) -> dict[str, str]:
    if isinstance(headers, Mapping) and all(_is_header(k, v) for k, v in headers.items()):
        return dict(headers)
    names = sorted(map(str, headers)) if isinstance(headers, Mapping) else headers
    raise ConfigError.of(
        where,
        names,
        "texts by name, each on one line of ASCII (values are not shown here)",
        "Use for example {'authorization': 'Bearer ...'}.",
    )


def _is_header(name: object, value: object) -> bool:
    if not (isinstance(name, str) and isinstance(value, str) and name):
        return False
    text = name + value
    return text.isascii() and text.isprintable() and ":" not in name and " " not in name


def _headers(
    signal: str, env: Mapping[str, str], own: dict[str, str] | None, protocol: str
) -> Pairs:
    fits = _is_metadata if protocol == "grpc" else _is_header
    if own is not None:
        wrong = sorted(name for name, value in own.items() if not fits(name, value))
        if wrong:  # all are fit for HTTP
            raise ConfigError.of(
                "headers for gRPC",
                wrong,
                "names of letters, digits, '_', '-' and '.', not grpc-... and not ...-bin",
                "Rename them, or use http/protobuf.",
            )
        return _secret(own)
    both = {
        **parse_pairs(env.get(f"{_PREFIX}HEADERS", "")),
        **parse_pairs(env.get(f"{_PREFIX}{signal}_HEADERS", "")),
    }
    return _secret({k: v for k, v in both.items() if fits(k, v)})


def _secret(headers: Mapping[str, str]) -> Pairs:
    """By name; nothing prints the values."""
    return tuple((name, Secret(value)) for name, value in sorted(headers.items()))


def _is_metadata(name: str, value: str) -> bool:
    return _is_header(name, value) and _METADATA_NAME.fullmatch(name.lower()) is not None


def _of_signal(signal: str, name: str, env: Mapping[str, str]) -> str:
    return (env.get(f"{_PREFIX}{signal}_{name}") or env.get(f"{_PREFIX}{name}") or "").strip()


def _timeout_s(signal: str, env: Mapping[str, str]) -> float:
    text = _of_signal(signal, "TIMEOUT", env)
    try:
        timeout_ms = float(text or 10_000)
    except ValueError:
        timeout_ms = -1.0
    if timeout_ms > 0:
        return timeout_ms / 1000
    _ignore(f"{_PREFIX}TIMEOUT", text, "milliseconds above 0")
    return 10.0


def _compression(signal: str, env: Mapping[str, str]) -> Compression:
    text = _of_signal(signal, "COMPRESSION", env).lower() or "none"
    if text == "gzip":
        return "gzip"
    if text != "none":
        _ignore(f"{_PREFIX}COMPRESSION", text, "gzip or none")
    return "none"


def _ignore(variable: str, value: str, expected: str) -> None:
    remedy = "It is ignored; correct or unset it."
    _LOG.warning("%s", describe(where=variable, value=value, expected=expected, remedy=remedy))


def logs_endpoint(metrics: Endpoint) -> Endpoint:
    """Where log records go: to the other side of the metrics."""
    url = metrics.url
    if metrics.protocol != "grpc" and url.endswith("/v1/metrics"):
        url = url.removesuffix("/v1/metrics") + "/v1/logs"
    return replace(metrics, url=url)
