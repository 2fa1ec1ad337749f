"""The HTTP client: one kept connection, TLS, proxies, and one deadline for a request as a whole.

It knows nothing of what it sends. A failure is a response (``Response.error``), never an exception,
because every caller is a loop that has to go on. It is written on sockets: the library `requests`
takes 0.3 to 0.5 ms a post, more than all the rest of a forwarding collector, and bounds each wait
but not their sum.
"""

from __future__ import annotations

import codecs
import math
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from otel_straggler.otlp.clients.addresses import bracketed, proxy_of
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.tls import load_authorities, tls_context
from otel_straggler.secret import reveal

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
CONNECT_TIMEOUT_S: Final = 5.0
UNIX: Final = "http+unix"
"""Scheme of a URL whose host is the path of a Unix socket, percent-encoded."""
_MAX_HEAD_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_COPIED_BYTES = 256 * 1024
"""A body up to this goes out in one call with its head: in two the peer wakes twice."""
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |$)")
_UNSAFE = re.compile(r"[\r\n\0]")
_IN_TARGETS = "%/:=&?~#+!$,;'@()*[]"

# Loaded now: a fork while a thread imports leaves the child half of it.
codecs.lookup("idna")


class HttpClient:
    """Asks one URL over a kept connection. For one thread at a time.

    Args:
        url: complete, with path; ``http+unix://%2Frun%2Fa.sock/path`` for a Unix socket.
        headers: sent with every request.
        timeout_s: for one request as a whole, connecting included.
        silence_s: for one wait in it.
        max_bytes: of an answer's body; what is beyond is cut off.
        ca_file: PEM file of the authorities to trust instead of the system's and certifi's.
        client_cert_file, client_key_file: for mutual TLS; the key may be in the first.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        silence_s: float = math.inf,
        max_bytes: int = MAX_ANSWER_BYTES,
        ca_file: str | None = None,
        client_cert_file: str | None = None,
        client_key_file: str | None = None,
    ) -> None:
        self._connection: _Connection | None = None
        self.url = url
        self.timeout_s = timeout_s
        self._silence_s = silence_s
        self._max_bytes = max_bytes
        self._headers = dict(headers or {})
        self._tls = ca_file, client_cert_file, client_key_file
        if url.startswith("https:"):
            load_authorities()  # loaded now, like the codec above
        self._target = ""
        self._lines: dict[str, str] = {}

    def post(
        self,
        body: bytes,
        *,
        content_type: str,
        content_encoding: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Send ``body`` and wait for the answer; ``timeout_s`` shortens this one request."""
        all_headers = {**(headers or {}), "Content-Type": content_type}
        if content_encoding:
            all_headers["Content-Encoding"] = content_encoding
        return self.send("POST", body, headers=all_headers, timeout_s=timeout_s)

    def get(
        self,
        query: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Ask, with an encoded query, and wait for the answer in the same way."""
        return self.send("GET", query=query, headers=headers, timeout_s=timeout_s)

    def send(
        self,
        method: str,
        body: bytes | None = None,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        limit_s = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        deadline_s = time.monotonic() + max(limit_s, 0.001)
        try:
            connection = self._connected(deadline_s)
            head = self._head(method, query, body, headers or {})
            is_sent = connection.write(head, body or b"")
            response, is_kept = connection.read_response(self._max_bytes)
        except (OSError, ValueError) as error:
            self.close()
            return Response(NO_ANSWER, error=_reason(error))
        if not (is_sent and is_kept):
            self.close()
        return response

    def close(self) -> None:
        """Drop the connection; the next request opens a fresh one. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()

    def _head(
        self, method: str, query: str, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        """
        Raises:
            ValueError: a header cannot be sent.
        """
        target = f"{self._target}{'&' if '?' in self._target else '?'}{query}" if query else None
        lines = self._lines | _lines(headers)
        if body is not None:
            lines["content-length"] = f"Content-Length: {len(body)}"
        begin = f"{method} {target or self._target} HTTP/1.1"
        return "\r\n".join((begin, *lines.values(), "", "")).encode("latin-1")

    def _connected(self, deadline_s: float) -> _Connection:
        if self._connection is not None and not self._connection.is_usable():
            self.close()
        if self._connection is None:
            self._connection = self._open(deadline_s)
        self._connection.deadline_s = deadline_s
        return self._connection

    def _open(self, deadline_s: float) -> _Connection:
        """Proxies and certificates are looked up once per connection."""
        parts = urlsplit(self.url)
        if parts.scheme == UNIX:
            connection = _Connection(unquote(parts.netloc), deadline_s, self._silence_s)
            self._lines = _lines({"Host": "localhost"}) | _lines(self._headers)
            self._target = _quoted(parts)
            return connection
        is_tls = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or (443 if is_tls else 80)
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("the URL does not begin with http:// or https:// and a host")
        context = tls_context(*self._tls) if is_tls else None
        proxy = urlsplit(proxy_of(self.url))
        if proxy.scheme not in ("", "http"):
            raise ValueError(f"a proxy by {proxy.scheme}:// cannot be used")
        address = (proxy.hostname or "", proxy.port or 80) if proxy.scheme else (host, port)
        connection = _Connection(address, deadline_s, self._silence_s)
        own = {"Host": _host_of(parts), "User-Agent": "otel-straggler", "Accept": "*/*"}
        try:
            if context is None:
                own |= _proxy_headers(proxy)
            elif proxy.scheme:
                connection.tunnel(f"{bracketed(host)}:{port}", _proxy_headers(proxy))
            if context is not None:
                connection.secure(context, host)
            self._lines = _lines(own) | _lines(self._headers)
        except BaseException:
            connection.close()
            raise
        origin = f"http://{_host_of(parts)}" if proxy.scheme and context is None else ""
        self._target = origin + _quoted(parts)
        return connection


class _Connection:
    """A socket, what of it was not read yet, and until when the current request may take.

    All methods raise OSError, also for a deadline that is over, and ValueError for what is not
    HTTP.
    """

    def __init__(self, address: tuple[str, int] | str, deadline_s: float, silence_s: float) -> None:
        self.deadline_s = deadline_s
        self._silence_s = silence_s
        self._unread = bytearray()
        timeout_s = min(self._left_s(), CONNECT_TIMEOUT_S)
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(timeout_s)
            try:
                self._socket.connect(address)
            except BaseException:
                self._socket.close()
                raise
            return
        self._socket = socket.create_connection(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        self._socket.settimeout(self._left_s())
        self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def tunnel(self, address: str, headers: Mapping[str, str]) -> None:
        """Have a proxy connect to an address."""
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{''.join(lines)}\r\n"
        self.write(head.encode("latin-1"), b"")
        status, _, _ = self._read_head()
        if not 200 <= status < 300:
            raise OSError(f"Tunnel connection failed: the proxy answers with status {status}")

    def is_usable(self) -> bool:
        """Whether the peer has neither closed nor sent what nobody asked for."""
        if self._unread:
            return False
        self._socket.settimeout(0.0)
        try:
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)  # the bytes below TLS
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def write(self, head: bytes, body: bytes) -> bool:
        """Whether all was sent. Who stops reading may have said why: an answer, or TLS's alert."""
        try:
            for data in (head + body,) if len(body) <= _COPIED_BYTES else (head, body):
                left = memoryview(data)
                while left:
                    self._socket.settimeout(self._left_s())
                    left = left[self._socket.send(left) :]
        except (ConnectionError, ssl.SSLError):
            return False
        return True

    def read_response(self, max_bytes: int) -> tuple[Response, bool]:
        """The final response, and whether the connection is kept."""
        status, headers, is_kept = self._read_head()
        while status < 200:  # interim ones
            status, headers, is_kept = self._read_head()
        body, is_whole = self._read_body(status, headers, max_bytes)
        return Response(status, headers, body), is_kept and is_whole

    def _read_head(self) -> tuple[int, dict[str, str], bool]:
        """Status, headers, and whether the peer keeps the connection."""
        while (end := self._unread.find(b"\r\n\r\n")) < 0:
            start = b"HTTP/1."[: len(self._unread)]
            if not self._unread.startswith(start) or len(self._unread) > _MAX_HEAD_BYTES:
                raise ValueError("the answer is not HTTP/1.1")
            if not self._read_more():
                raise ConnectionResetError("Remote end closed connection without response")
        lines = bytes(self._unread[:end]).split(b"\r\n")
        del self._unread[: end + 4]
        begin = _STATUS_LINE.match(lines[0])
        if begin is None:
            raise ValueError("the answer is not HTTP/1.1")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.decode("latin-1").partition(":")
            low, value = name.strip().lower(), value.strip()
            headers[low] = f"{headers[low]}, {value}" if low in headers else value
        options = headers.get("connection", "").lower()
        is_kept = "close" not in options if begin[1] == b"1" else "keep-alive" in options
        return int(begin[2]), headers, is_kept

    def _read_body(
        self, status: int, headers: Mapping[str, str], max_bytes: int
    ) -> tuple[bytes, bool]:
        """The body up to ``max_bytes``, and whether that is all and its end was stated."""
        if status in (204, 304):
            return b"", True
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._read_chunks(max_bytes)
        length = headers.get("content-length")
        if length is None:
            while len(self._unread) < max_bytes and self._read_more():
                pass
            return bytes(self._unread[:max_bytes]), False
        size = int(length)
        self._need(min(size, max_bytes))
        body = bytes(self._unread[: min(size, max_bytes)])
        del self._unread[: len(body)]
        return body, size <= max_bytes

    def _read_chunks(self, max_bytes: int) -> tuple[bytes, bool]:
        body = bytearray()
        while size := int(self._read_line().partition(b";")[0], 16):
            while size > 0:
                self._need(1)
                piece = self._unread[:size]
                del self._unread[: len(piece)]
                body += piece
                size -= len(piece)
                if len(body) > max_bytes:
                    return bytes(body[:max_bytes]), False
            if size or self._read_line():
                raise ValueError("a chunk of the answer does not end where it should")
        while self._read_line():  # trailers
            pass
        return bytes(body), True

    def _read_line(self) -> bytes:
        while (end := self._unread.find(b"\r\n")) < 0:
            if len(self._unread) > _MAX_HEAD_BYTES:
                raise ValueError("the answer is not HTTP/1.1")
            self._need(len(self._unread) + 1)
        line = bytes(self._unread[:end])
        del self._unread[: end + 2]
        return line

    def _need(self, size: int) -> None:
        while len(self._unread) < size:
            if not self._read_more():
                raise ConnectionResetError("the connection was closed in the middle of the answer")

    def _read_more(self) -> bool:
        """Whether anything came; False at the end of the connection."""
        self._socket.settimeout(self._left_s())
        piece = self._socket.recv(_READ_BYTES)
        self._unread += piece
        return bool(piece)

    def _left_s(self) -> float:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return min(left_s, self._silence_s)


def _reason(error: Exception) -> str:
    """The system's own words, such as "Connection refused"."""
    if isinstance(error, OSError) and error.strerror and error.filename is None:
        return error.strerror
    return str(error) or type(error).__name__


def _lines(headers: Mapping[str, str]) -> dict[str, str]:
    """By name in lower case: the last of each counts.

    Raises:
        ValueError: one would be more than a line.
    """
    lines = {name.lower(): f"{name}: {reveal(value)}" for name, value in headers.items()}
    if any(map(_UNSAFE.search, lines.values())):
        raise ValueError("a header holds a line break")
    return lines


def _quoted(parts: SplitResult) -> str:
    """Path and query as they are sent."""
    query = f"?{parts.query}" if parts.query else ""
    return quote(f"{parts.path or '/'}{query}", safe=_IN_TARGETS)


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {b64encode(pair).decode()}"}


def _host_of(parts: SplitResult) -> str:
    """Host and port for the header, without a user."""
    address = parts.netloc.rpartition("@")[2]
    return address if address.isascii() else address.encode("idna").decode()
