"""The way to an address: proxy, name, connection, TLS."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from otel_straggler.config import Endpoint
from otel_straggler.doctor.findings import Finding, info, ok, problem, warning
from otel_straggler.otlp.clients.tls import tls_advice, tls_context

CA_REMEDY = "export OTEL_EXPORTER_OTLP_CERTIFICATE=/path/to/ca.pem   # the CA of its certificate"
_KEY_REMEDY = "export OTEL_EXPORTER_OTLP_CLIENT_KEY=/path/to/own.key   # of the own certificate"
OWN_REMEDY = (
    "export OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/path/to/own.pem "
    "OTEL_EXPORTER_OTLP_CLIENT_KEY=/path/to/own.key   # signed by an authority that it trusts"
)
_SOON_DAYS = 14
_PROXY_VARIABLES = {
    "grpc": ("grpc_proxy", "https_proxy", "http_proxy"),
    "http": ("http_proxy", "all_proxy"),
    "https": ("https_proxy", "all_proxy"),
}


def check_way(endpoint: Endpoint, env: Mapping[str, str], timeout_s: float) -> Iterator[Finding]:
    """Check from here to the port."""
    proxy = proxy_for(endpoint, env)
    if proxy:
        yield _through_proxy(endpoint, *proxy)
        return
    parts = urlsplit(endpoint.url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    addresses = resolve(host, port, timeout_s)
    if isinstance(addresses, str):
        sentence = f"The name {host} has no address here: {addresses}."
        remedy = f"getent hosts {host}   # then correct the name in the endpoint, or the resolver"
        yield problem("endpoint.dns", sentence, remedy, host)
        return
    if addresses != [host]:
        yield ok("endpoint.dns", f"{host} is {', '.join(addresses)}.", addresses)
    try:
        started_s = time.monotonic()
        with socket.create_connection((host, port), timeout_s) as connection:
            took_ms = (time.monotonic() - started_s) * 1e3
            sentence = f"Port {port} of {host} takes connections ({took_ms:.1f} ms)."
            yield ok("endpoint.tcp", sentence, {"connect_ms": round(took_ms, 2)})
            if is_tls:
                yield check_tls(connection, host, endpoint)
    except OSError as error:
        yield _no_connection(host, port, error)


def proxy_for(endpoint: Endpoint, env: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable and proxy of requests; None if there is none."""
    parts = urlsplit(endpoint.url)
    kind = "grpc" if endpoint.protocol == "grpc" else parts.scheme
    host, port = parts.hostname or "", parts.port
    bypassed = _variable(env, "no_grpc_proxy") if kind == "grpc" else None
    bypassed = bypassed or _variable(env, "no_proxy")
    address = f"{host}:{port}" if port else host
    if bypassed and urllib.request.proxy_bypass_environment(address, {"no": bypassed[1]}):  # type: ignore[attr-defined]
        return None
    result = (_variable(env, name) for name in _PROXY_VARIABLES[kind])
    return next((one for one in result if one), None)


def proxy_remedy(endpoint: Endpoint) -> str:
    """Bypass the proxy for this host."""
    return f'export no_proxy="${{no_proxy:+$no_proxy,}}{urlsplit(endpoint.url).hostname}"'


def _variable(env: Mapping[str, str], name: str) -> tuple[str, str] | None:
    return next(((n, env[n]) for n in (name, name.upper()) if env.get(n)), None)


def _through_proxy(endpoint: Endpoint, variable: str, proxy: str) -> Finding:
    parts = urlsplit(endpoint.url)
    shown = urlsplit(proxy).hostname or "?"
    return warning(
        "endpoint.proxy",
        f"{variable} sends requests for {parts.hostname} through the proxy {shown}, since no_proxy "
        "does not name it. Name, port and TLS were not tried from here.",
        proxy_remedy(endpoint),
        {"variable": variable, "proxy": shown},
    )


def resolve(host: str, port: int, timeout_s: float) -> list[str] | str:
    """Addresses of a name, or why there are none. The resolver has no timeout of its own."""
    answer: list[list[str] | str] = []

    def ask() -> None:
        try:
            result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answer.append(list(dict.fromkeys(str(entry[4][0]) for entry in result)))
        except OSError as error:
            answer.append(error.strerror or str(error))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeout_s)
    return answer[0] if answer else f"the resolver did not answer within {timeout_s:g} s"


def _no_connection(host: str, port: int, error: OSError) -> Finding:
    reason = error.strerror or str(error)
    if isinstance(error, ConnectionRefusedError):
        sentence = f"Nothing listens on port {port} of {host}."
        remedy = (
            f"otel-straggler collector --otlp-http 0.0.0.0:{port}   # there, with auth.grant_files "
            "or --insecure; --otlp-grpc for gRPC"
            if host not in {"localhost", "127.0.0.1", "::1"}
            else "otel-straggler collector   # or name the right host in OTEL_STRAGGLER_ENDPOINT"
        )
        return problem("endpoint.tcp", sentence, remedy, reason)
    sentence = f"Port {port} of {host} cannot be reached: {reason}."
    remedy = f"nc -vz {host} {port}   # does a firewall or network policy stand between?"
    return problem("endpoint.tcp", sentence, remedy, reason)


def check_tls(connection: socket.socket, host: str, endpoint: Endpoint) -> Finding:
    """Whether the certificate is trusted, and until when."""
    missing = _missing_file(endpoint)
    if missing is not None:
        file, remedy = missing
        return problem("endpoint.tls", f"A file for TLS cannot be read: {file}.", remedy, file)
    try:
        files = endpoint.ca_file, endpoint.client_cert_file, endpoint.client_key_file
        context = tls_context(*(file or None for file in files))
    except (ssl.SSLError, OSError) as error:
        return _not_usable(endpoint, error)
    try:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            return _certificate(secured.getpeercert() or {}, str(secured.version()), host)
    except ssl.SSLError as error:
        if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
            sentence = f"{host} does not speak TLS on that port."
            return problem("endpoint.tls", sentence, "Begin the endpoint with http://", "plain")
        reason = (getattr(error, "verify_message", "") or error.reason or str(error)).rstrip(".")
        remedy = tls_advice(endpoint.url, f"{error}", ca=CA_REMEDY, own=OWN_REMEDY) or CA_REMEDY
        return problem("endpoint.tls", f"No TLS with {host}: {reason}.", remedy, reason)


def _missing_file(endpoint: Endpoint) -> tuple[str, str] | None:
    """The first file that cannot be read, and how to name it."""
    named = (
        (endpoint.ca_file, CA_REMEDY),
        (endpoint.client_cert_file, OWN_REMEDY),
        (endpoint.client_key_file, _KEY_REMEDY),
    )
    return next(((file, how) for file, how in named if file and not os.access(file, os.R_OK)), None)


def _not_usable(endpoint: Endpoint, error: OSError) -> Finding:
    """The files exist but do not work."""
    reason = str(getattr(error, "reason", None) or error)
    if "KEY_VALUES_MISMATCH" in reason:
        files = f"{endpoint.client_key_file} is not the key of {endpoint.client_cert_file}"
        return problem("endpoint.tls", f"No TLS: {files}.", _KEY_REMEDY, reason)
    files = ", ".join(filter(None, (endpoint.ca_file, endpoint.client_cert_file)))
    sentence = f"No TLS: {files}: {reason}. Certificates in PEM are expected."
    remedy = f"openssl x509 -noout -subject -in {endpoint.ca_file or endpoint.client_cert_file}"
    return problem("endpoint.tls", sentence, remedy, reason)


def _certificate(certificate: Mapping[str, Any], version: str, host: str) -> Finding:
    ends = certificate.get("notAfter")
    if not isinstance(ends, str):
        return info("endpoint.tls", f"{version} with {host}.", {"version": version})
    days = (ssl.cert_time_to_seconds(ends) - time.time()) / 86_400
    sentence = f"{version} with {host}; its certificate ends in {days:.0f} days."
    value = {"version": version, "days_left": round(days, 1)}
    if days < _SOON_DAYS:
        return warning("endpoint.tls", sentence, f"Renew the certificate of {host}.", value)
    return ok("endpoint.tls", sentence, value)


MAX_SKEW_S = 1.0


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """Bounds of the other clock minus ours, in seconds."""

    min_s: float
    max_s: float

    @property
    def middle_s(self) -> float:
        return (self.min_s + self.max_s) / 2

    @property
    def error_s(self) -> float:
        return (self.max_s - self.min_s) / 2


def clock_bounds(date: str, asked_s: float, came_s: float) -> ClockBounds | None:
    """Bounds from a Date header, which is cut to whole seconds; None without one.

    >>> clock_bounds("Thu, 01 Jan 1970 00:01:00 GMT", 10.0, 10.5)
    ClockBounds(min_s=49.5, max_s=51.0)
    """
    try:
        stamped_s = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    return ClockBounds(stamped_s - came_s, stamped_s + 1.0 - asked_s)


def check_clock(bounds: ClockBounds | None, whose: str) -> Finding:
    """Windows of spans without steps, and traces, rely on the ranks' clocks."""
    if bounds is None:
        sentence = (
            "The other side's clock is not known: no answer had a Date. "
            "--collector URL asks the collector's own address."
        )
        return info("clock.skew", sentence)
    value = {"skew_s": round(bounds.middle_s, 3), "error_s": round(bounds.error_s, 3)}
    size = f"{abs(bounds.middle_s):.1f} s"
    error = f"give or take {bounds.error_s:.1f} s"
    if bounds.min_s > MAX_SKEW_S or bounds.max_s < -MAX_SKEW_S:
        direction = "behind" if bounds.middle_s > 0 else "ahead of"
        sentence = (
            f"This clock is {direction} {whose} by {size}, {error}: spans of different ranks do "
            "not line up."
        )
        return warning("clock.skew", sentence, "chronyc tracking   # or: timedatectl", value)
    return ok("clock.skew", f"This clock agrees with {whose}: {size} apart, {error}.", value)
