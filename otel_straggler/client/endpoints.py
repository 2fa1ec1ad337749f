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
from typing import get_args
from urllib.parse import SplitResult, unquote, urlsplit

from otel_straggler.config import (
    DEFAULT_ENDPOINT,
    DEFAULT_GRPC_ENDPOINT,
    Compression,
    Endpoint,
    OtlpProtocol,
)
from otel_straggler.errors import ConfigError, describe
from otel_straggler.setting import Pairs

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


_PATHS = {"TRACES": "/v1/traces", "METRICS": "/v1/metrics"}
_EXPECTED = {
    "http/protobuf": "a URL that begins with http:// or https://",
    "grpc": "a URL that begins with http:// or https:// and has no path (gRPC has none)",
}


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """An address that was named to us, as written, and where."""

    text: object
    where: str

    @property
    def port(self) -> int | None:
        parts = _split(self.text) if isinstance(self.text, str) else None
        return parts.port if parts else None


@dataclass(frozen=True, slots=True)
class Address:
    """A settled address, and the argument or variable that named it; empty = the default."""

    url: str
    where: str = ""


def own_address(env: Mapping[str, str], endpoint: object) -> OwnAddress | None:
    """The argument, or ``OTEL_STRAGGLER_ENDPOINT``; None if neither is given."""
    if endpoint is not None:
        return OwnAddress(endpoint, "configure(endpoint=...)")
    named = env.get("OTEL_STRAGGLER_ENDPOINT", "").strip()
    return OwnAddress(named, "OTEL_STRAGGLER_ENDPOINT") if named else None


def find_address(
    signal: str, env: Mapping[str, str], own: OwnAddress | None, protocol: OtlpProtocol
) -> Address:
    """Where "TRACES" or "METRICS" go.

    Raises:
        ConfigError: what was named to us is no address for this protocol.
    """
    if own is not None:
        return Address(_checked(own, signal, protocol, env), own.where)
    return _others_address(signal, env, protocol)


def _checked(own: OwnAddress, signal: str, protocol: OtlpProtocol, env: Mapping[str, str]) -> str:
    if isinstance(own.text, str):
        if protocol == "grpc":
            url = _grpc_url(own.text, signal, env)
            if url and _path_of(own.text) in {"", "/"}:
                return url
        elif _is_url(own.text):
            return _with_path(own.text, _PATHS[signal])
    default = DEFAULT_GRPC_ENDPOINT if protocol == "grpc" else DEFAULT_ENDPOINT
    message = describe(
        where=own.where,
        value=own.text,
        expected=_EXPECTED[protocol],
        remedy=f"Use for example {default}.",
    )
    raise ConfigError(message)


def _others_address(signal: str, env: Mapping[str, str], protocol: OtlpProtocol) -> Address:
    """A signal's own endpoint is used as it is; the common one gets the signal's path."""
    own, common = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    for variable, path in ((own, ""), (common, _PATHS[signal])):
        text = env.get(variable, "").strip()
        if not text:
            continue
        if protocol == "grpc" and (url := _grpc_url(text, signal, env)):
            return Address(url, variable)
        if protocol != "grpc" and _is_url(text):
            return Address(_with_path(text, path) if path else text, variable)
        remedy = "It is ignored; correct or unset it."
        expected = "a URL that begins with http:// or https://"
        _LOG.warning("%s", describe(where=variable, value=text, expected=expected, remedy=remedy))
    if protocol == "grpc":
        return Address(DEFAULT_GRPC_ENDPOINT)
    return Address(_with_path(DEFAULT_ENDPOINT, _PATHS[signal]))


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
        text = f"{'http' if _is_insecure(signal, env) else 'https'}://{text}"
    url = urlsplit(text) if _is_url(text) else None
    return f"{url.scheme}://{url.netloc}" if url else ""


def _is_insecure(signal: str, env: Mapping[str, str]) -> bool:
    prefix = "OTEL_EXPORTER_OTLP_"
    text = env.get(f"{prefix}{signal}_INSECURE") or env.get(f"{prefix}INSECURE") or ""
    return text.strip().lower() == "true"


def _path_of(text: str) -> str:
    parts = _split(text)
    return parts.path if parts else ""


def _is_url(text: str) -> bool:
    parts = _split(text) if "://" in text else None
    return parts is not None and parts.scheme in {"http", "https"}


def _split(text: str) -> SplitResult | None:
    """The parts of a URL, or of ``host:port``; None if there is no host or the port is wrong."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:  # a port that is no number
        return None


def _with_path(base: str, path: str) -> str:
    return base.rstrip("/") + path


PROTOCOLS: tuple[OtlpProtocol, ...] = get_args(OtlpProtocol)
HTTP_PORT = 4318


@dataclass(frozen=True, slots=True)
class ChosenProtocol:
    """A protocol, and the argument or variable that named it; empty = the default."""

    protocol: OtlpProtocol = "http/protobuf"
    where: str = ""


def choose_protocols(
    env: Mapping[str, str], argument: str | None, own_port: int | None, *, is_used: bool
) -> dict[str, ChosenProtocol]:
    """The protocol of "TRACES" and of "METRICS".

    Args:
        env: the environment.
        argument: of ``configure()``.
        own_port: of an endpoint that was named to us.
        is_used: whether anything will be sent; if not, a missing package is no error.

    Raises:
        ConfigError: the argument or ``OTEL_STRAGGLER_PROTOCOL`` cannot be followed.
    """
    own = _own_choice(env, argument, is_used=is_used)
    if own is not None:
        return {"TRACES": own, "METRICS": own}
    logged: set[str] = set()
    return {
        signal: _others_choice(signal, env, own_port, logged) for signal in ("TRACES", "METRICS")
    }


def _own_choice(
    env: Mapping[str, str], argument: str | None, *, is_used: bool
) -> ChosenProtocol | None:
    where = "configure(protocol=...)" if argument is not None else "OTEL_STRAGGLER_PROTOCOL"
    value = argument if argument is not None else env.get(where, "").strip().lower() or None
    if value is None:
        return None
    for protocol in PROTOCOLS:
        if value == protocol:
            if is_used and protocol == "grpc" and (reason := _why_no_grpc()):
                raise ConfigError(f"{where}: got 'grpc', but {reason}.")
            return ChosenProtocol(protocol, where)
    message = describe(
        where=where,
        value=value,
        expected="'http/protobuf' or 'grpc'",
        remedy="Leave it out for http/protobuf.",
    )
    raise ConfigError(message)


def _others_choice(
    signal: str, env: Mapping[str, str], own_port: int | None, logged: set[str]
) -> ChosenProtocol:
    for where in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        value = env.get(where, "").strip().lower()
        if not value:
            continue
        trouble = _why_not(value, own_port)
        if not trouble:
            return ChosenProtocol("grpc" if value == "grpc" else "http/protobuf", where)
        if where not in logged:
            logged.add(where)
            _LOG.warning("%s is %r, but %s. http/protobuf is used.", where, value, trouble)
        break
    return ChosenProtocol()


def _why_not(value: str, own_port: int | None) -> str:
    if value == "http/protobuf":
        return ""
    if value != "grpc":
        return "otel-straggler sends http/protobuf or grpc"
    if own_port == HTTP_PORT:
        return (
            f"port {HTTP_PORT} of the endpoint is that of OTLP over HTTP; "
            "OTEL_STRAGGLER_PROTOCOL settles which is meant"
        )
    return _why_no_grpc()


def _why_no_grpc() -> str:
    from otel_straggler.otlp.clients.grpc import why_unusable

    return why_unusable()
