"""The address of the other side, from arguments and environment.

Order: argument > ``OTEL_STRAGGLER_ENDPOINT`` > ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` and
``..._METRICS_ENDPOINT`` > ``OTEL_EXPORTER_OTLP_ENDPOINT`` > this machine. What an address may look
like depends on the protocol: HTTP takes a URL with a path; gRPC takes scheme, host and port, and
``host:port`` alone, for which ``OTEL_EXPORTER_OTLP_INSECURE`` says whether it is without TLS.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from otel_straggler.config import DEFAULT_ENDPOINT, DEFAULT_GRPC_ENDPOINT, OtlpProtocol
from otel_straggler.errors import ConfigError, describe

_LOG = logging.getLogger("otel_straggler")
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
