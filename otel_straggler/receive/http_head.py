"""The head of a request: read, judged, and written again without its wish to upgrade."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from otel_straggler.receive.http_messages import Head

RawHeaders = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset({b"upgrade", b"connection", b"http2-settings"})
_KNOWN_VERSIONS = frozenset({"1.0", "1.1"})
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:[0-9]*)?", re.ASCII)
"""A name, an address or nothing, and a port (RFC 9110, 7.2)."""
_AUTHORITY_END = re.compile("([/?#]|$)")


def read_head(parser: Any, target: bytes, raw: RawHeaders) -> Head:
    """Build the head from what the parser gave."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    authority, path, query = _split_target(target.decode("latin-1"))
    if authority is not None:
        headers["host"] = authority  # which counts, and not the header (RFC 9112, 3.2.2)
    method = parser.get_method().decode("latin-1")
    return Head(method, path, parser.get_http_version(), headers, query)


def problem_of(head: Head, raw: RawHeaders) -> tuple[int, str] | None:
    """Why a request must not be read any further: its framing or its addressee is unclear.

    llhttp has refused the rest: two lengths, a length beside a coding, bare line feeds.
    """
    coding = head.headers.get("transfer-encoding")
    if head.version not in _KNOWN_VERSIONS:
        return 505, "only HTTP/1.0 and HTTP/1.1 are spoken here"
    if head.method == "CONNECT":
        return 405, "this is no proxy"
    if coding is not None and head.version == "1.0":
        return 400, "Transfer-Encoding does not exist in HTTP/1.0"
    if coding is not None and coding.lower() != "chunked":
        return 501, "the only Transfer-Encoding is chunked"
    if coding is not None and "content-length" in head.headers:
        return 400, "both Content-Length and Transfer-Encoding"
    hosts = [value for name, value in raw if name.lower() == b"host"]
    if len(hosts) > 1 or (not hosts and head.version == "1.1"):
        return 400, "there must be one Host header"
    named = (*hosts, head.headers.get("host", "").encode("latin-1"))
    if not all(_HOST.fullmatch(host.strip(b" \t")) for host in named):
        return 400, "the Host header names no host"
    if "expect" in head.headers and not _expected(head) <= {"100-continue"}:
        return 417, "the only expectation is 100-continue"
    return None


def without_upgrade(head: Head, target: bytes, raw: RawHeaders, *, keep_alive: bool) -> bytes:
    """Write the head again. A server may ignore Upgrade (RFC 9110, 7.8); the parser cannot."""
    lines = [f"{head.method} ".encode() + target + f" HTTP/{head.version}".encode()]
    lines += [n + b": " + v for n, v in raw if n.lower() not in _HOP_BY_HOP]
    lines.append(b"Connection: keep-alive" if keep_alive else b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _expected(head: Head) -> set[str]:
    named = (one.strip().lower() for one in head.headers.get("expect", "").split(","))
    return {one for one in named if one}


def _split_target(target: str) -> tuple[str | None, str, str]:
    """Split a target in origin or absolute form into authority, path and query.

    >>> _split_target("http://host:4318/v1/%74races?x=1")
    ('host:4318', '/v1/traces', 'x=1')
    """
    authority = None
    if not target.startswith("/") and "://" in target:
        authority, separator, rest = _AUTHORITY_END.split(target.partition("://")[2], maxsplit=1)
        target = "/" + separator.removeprefix("/") + rest
    path, _, query = target.partition("#")[0].partition("?")
    return authority, unquote(path), query
