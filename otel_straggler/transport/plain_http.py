"""Posts without TLS over one kept connection, for who sends thousands a second.

The library `requests` takes 0.4 ms for a post, most of which is preparing and taking apart what is
the same every time. Here the head is written once, head and body go out in one call, and llhttp
(through httptools) reads the answer. What needs more (TLS, a proxy, a name and password in the URL)
is for :class:`~otel_straggler.transport.http.HttpClient`.
"""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_straggler.transport.http import CONNECT_TIMEOUT_S, LARGEST_ANSWER_BYTES, HttpClient
from otel_straggler.transport.response import NO_ANSWER, Response

if TYPE_CHECKING:
    from otel_straggler.transport.client import Client

_READ_BYTES = 64 * 1024
_AGENT = "otel-straggler"


def plain_client(url: str, *, timeout_s: float = 10.0) -> Client:
    """The cheapest client that can post to ``url`` from this environment."""
    from requests.utils import get_environ_proxies, select_proxy

    parts = urlsplit(url)
    is_plain = parts.scheme == "http" and "@" not in parts.netloc
    if is_plain and select_proxy(url, get_environ_proxies(url)) is None:
        return PlainHttpClient(url, timeout_s=timeout_s)
    return HttpClient(url, timeout_s=timeout_s)


class PlainHttpClient:
    """Posts bodies to one ``http://`` URL. For one thread at a time.

    Args:
        url: complete, with path.
        timeout_s: for one request as a whole, connecting included.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or 80
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._head = f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: {_AGENT}\r\n"
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def post(
        self,
        body: bytes,
        *,
        content_type: str,
        content_encoding: str | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Send ``body`` and wait for the answer. Never raises: a failure is an answer."""
        coding = f"Content-Encoding: {content_encoding}\r\n" if content_encoding else ""
        head = (
            f"{self._head}Content-Type: {content_type}\r\n{coding}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        deadline_s = time.monotonic() + max(limit_s, 0.001)
        try:
            connection = self._connected(deadline_s)
            _send(connection, head.encode("latin-1"), body, deadline_s)
            answer = _read(connection, deadline_s)
        except (OSError, ValueError) as error:
            self.close()
            return Response(NO_ANSWER, error=f"{type(error).__name__}: {error}")
        if not answer.keeps_connection:
            self.close()
        return answer.response()

    def close(self) -> None:
        """Drop the connection; the next post opens a fresh one. Safe to call twice."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _connected(self, deadline_s: float) -> socket.socket:
        if self._socket is not None and _has_ended(self._socket):
            self.close()
        if self._socket is None:
            allowed_s = min(_left_s(deadline_s), CONNECT_TIMEOUT_S)
            self._socket = socket.create_connection(self._address, allowed_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket


class _Answer:
    """What llhttp has understood so far; final answers only (an interim 1xx is passed over)."""

    def __init__(self) -> None:
        import httptools

        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._status = 0
        self._has_head = False
        self.is_complete = False
        self.keeps_connection = False

    def feed(self, data: bytes) -> None:
        """Take what came; nothing at all means that the peer has closed.

        Raises:
            ValueError: this is no HTTP, or it ends in the middle.
        """
        import httptools

        if data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                msg = f"the answer is not HTTP/1.1: {error}"
                raise ValueError(msg) from error
        elif self._has_head and not {"content-length", "transfer-encoding"} & set(self._headers):
            self.is_complete = True  # the end of the connection is the end of the body
        else:
            msg = "the connection was closed before the answer was complete"
            raise ConnectionResetError(msg)

    def response(self) -> Response:
        return Response(self._status, self._headers, bytes(self._body[:LARGEST_ANSWER_BYTES]))

    # --- what the parser says ---

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._has_head = self._status >= 200

    def on_body(self, piece: bytes) -> None:
        if len(self._body) < LARGEST_ANSWER_BYTES:
            self._body += piece

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_complete = True
            self.keeps_connection = bool(self._parser.should_keep_alive())
        self._headers = self._headers if self._has_head else {}


def _send(connection: socket.socket, head: bytes, body: bytes, deadline_s: float) -> None:
    """Head and body in one call: in two the peer wakes twice."""
    connection.settimeout(_left_s(deadline_s))
    sent = connection.sendmsg([head, body])
    if sent < len(head):
        connection.sendall(head[sent:])
        sent = len(head)
    if sent < len(head) + len(body):
        connection.settimeout(_left_s(deadline_s))  # of all the rest together
        connection.sendall(memoryview(body)[sent - len(head) :])


def _read(connection: socket.socket, deadline_s: float) -> _Answer:
    answer = _Answer()
    while not answer.is_complete:
        connection.settimeout(_left_s(deadline_s))
        answer.feed(connection.recv(_READ_BYTES))
    return answer


def _has_ended(connection: socket.socket) -> bool:
    """Whether the peer has closed, or sent what nobody asked for."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _left_s(deadline_s: float) -> float:
    """Raises:
    TimeoutError: no time is left.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        msg = "the request took longer than the time-out"
        raise TimeoutError(msg)
    return left_s
