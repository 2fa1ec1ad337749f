"""Where telemetry goes, from arguments and environment.

Order: argument > ``OTEL_STRAGGLER_ENDPOINT`` > ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` and
``..._METRICS_ENDPOINT`` > ``OTEL_EXPORTER_OTLP_ENDPOINT`` > this machine. A wrong argument or
``OTEL_STRAGGLER_*`` variable is an error; a wrong ``OTEL_*`` variable belongs to others and is
logged and ignored, as OpenTelemetry's specification asks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from otel_straggler.config import DEFAULT_ENDPOINT, Compression, Endpoint, Pairs
from otel_straggler.errors import ConfigError, describe

_LOG = logging.getLogger("otel_straggler")
_PREFIX = "OTEL_EXPORTER_OTLP_"
_PROTOCOL = "http/protobuf"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Both signals, and whether the user said that the other side scores."""

    traces: Endpoint
    metrics: Endpoint
    is_trusted: bool


def resolve_endpoints(
    env: Mapping[str, str], endpoint: str | None, headers: Mapping[str, str] | None
) -> Endpoints:
    """Settle both endpoints.

    Raises:
        ConfigError: the argument or ``OTEL_STRAGGLER_ENDPOINT`` is no URL, or a header is wrong.
    """
    _warn_of_protocol(env)
    base = _trusted_base(env, endpoint)
    own_headers = _own_headers(env, headers)
    return Endpoints(
        traces=_endpoint("TRACES", "/v1/traces", env, base, own_headers),
        metrics=_endpoint("METRICS", "/v1/metrics", env, base, own_headers),
        is_trusted=base is not None,
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


def _trusted_base(env: Mapping[str, str], endpoint: str | None) -> str | None:
    if endpoint is not None:
        return _checked_url(endpoint, "configure(endpoint=...)")
    named = env.get("OTEL_STRAGGLER_ENDPOINT", "").strip()
    return _checked_url(named, "OTEL_STRAGGLER_ENDPOINT") if named else None


def _checked_url(url: object, where: str) -> str:
    if isinstance(url, str) and _is_url(url):
        return url
    message = describe(
        where=where,
        value=url,
        expected="a URL that begins with http:// or https://",
        remedy=f"Use for example {DEFAULT_ENDPOINT}.",
    )
    raise ConfigError(message)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _endpoint(
    signal: str,
    path: str,
    env: Mapping[str, str],
    base: str | None,
    own_headers: dict[str, str] | None,
) -> Endpoint:
    return Endpoint(
        url=_with_path(base, path) if base else _otel_url(signal, path, env),
        headers=_headers(signal, env, own_headers),
        timeout_s=_timeout_s(signal, env),
        compression=_compression(signal, env),
        ca_file=_either(signal, "CERTIFICATE", env),
        client_cert_file=_either(signal, "CLIENT_CERTIFICATE", env),
        client_key_file=_either(signal, "CLIENT_KEY", env),
        is_enabled=env.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() != "none",
    )


def _otel_url(signal: str, path: str, env: Mapping[str, str]) -> str:
    """A signal's own endpoint is used as it is; the common one gets the signal's path."""
    own = env.get(f"{_PREFIX}{signal}_ENDPOINT", "").strip()
    if own and _is_usable(f"{_PREFIX}{signal}_ENDPOINT", own):
        return own
    common = env.get(f"{_PREFIX}ENDPOINT", "").strip()
    if common and _is_usable(f"{_PREFIX}ENDPOINT", common):
        return _with_path(common, path)
    return _with_path(DEFAULT_ENDPOINT, path)


def _is_usable(variable: str, url: str) -> bool:
    if _is_url(url):
        return True
    _ignore(variable, url, "a URL that begins with http:// or https://")
    return False


def _with_path(base: str, path: str) -> str:
    return base.rstrip("/") + path


def _own_headers(
    env: Mapping[str, str], headers: Mapping[str, str] | None
) -> dict[str, str] | None:
    if headers is not None:
        return _checked_headers(headers, "configure(headers=...)")
    text = env.get("OTEL_STRAGGLER_HEADERS")
    return None if text is None else _checked_headers(parse_pairs(text), "OTEL_STRAGGLER_HEADERS")


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


def _headers(signal: str, env: Mapping[str, str], own: dict[str, str] | None) -> Pairs:
    if own is not None:
        return tuple(sorted(own.items()))
    both = {
        **parse_pairs(env.get(f"{_PREFIX}HEADERS", "")),
        **parse_pairs(env.get(f"{_PREFIX}{signal}_HEADERS", "")),
    }
    return tuple(sorted((k, v) for k, v in both.items() if _is_header(k, v)))


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


def _warn_of_protocol(env: Mapping[str, str]) -> None:
    for variable in ("PROTOCOL", "TRACES_PROTOCOL", "METRICS_PROTOCOL"):
        text = env.get(_PREFIX + variable, "").strip()
        if text and text != _PROTOCOL:
            _LOG.warning(
                "%s is %r; otel-straggler sends http/protobuf. Point "
                "OTEL_STRAGGLER_ENDPOINT at an OTLP/HTTP port (4318, not 4317).",
                _PREFIX + variable,
                text,
            )
            return


def _ignore(variable: str, value: str, expected: str) -> None:
    remedy = "It is ignored; correct or unset it."
    _LOG.warning("%s", describe(where=variable, value=value, expected=expected, remedy=remedy))
