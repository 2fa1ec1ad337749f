"""Reads the requests of one HTTP/1.1 connection: framing and bodies.

llhttp (through httptools) parses, strictly. A request with unclear framing is refused and is the
last that is read, so that nobody can hide a second one inside.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools

from otel_straggler.collector.ingest.http_bodies import ON_LOOP_BYTES, Incoming
from otel_straggler.collector.ingest.http_messages import (
    Head,
    RawHeaders,
    Response,
    problem_of,
    read_head,
    without_upgrade,
)

if TYPE_CHECKING:
    from otel_straggler.collector.ingest.http_connection import Connection
    from otel_straggler.collector.ingest.http_server import HttpServer

_log = logging.getLogger(__name__)

_HEAD_TOO_LARGE = "the request head is too large"


@dataclass(slots=True)
class Due:
    """A request whose answer is due: ``response`` if it is known, else its body."""

    head: Head | None
    keep_alive: bool
    response: Response | None = None
    incoming: Incoming | None = None


class RequestReader:
    """States: between requests, in the head, in the body; at last, ended.

    Attributes:
        is_ended: no further request is read.
        has_asked: a head was complete at some time.
        head: of the request being read, once complete.
        due: requests that are complete or refused; the connection takes them from there.
        fed_at: when bytes came last, or a thread was done with the body.
        began_at: when the request being read began (``time.monotonic``); None between two.
        wants_continue: the peer waits to be asked for the body.
    """

    def __init__(
        self, server: HttpServer, connection: Connection, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._server = server
        self._connection = connection
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self.due: deque[Due] = deque()
        self.is_ended = False
        self.has_asked = False
        self.began_at: float | None = None
        self.fed_at = time.monotonic()
        self._has_moved = False  # something was complete in the bytes being parsed
        self._unseen_bytes = 0
        self._max_inflated = 0  # bytes that may still be inflated of what is being parsed
        self._incoming: Incoming | None = None
        self._reset()

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the connection."""
        self.fed_at = time.monotonic()
        if self.began_at is None:
            self.began_at = self.fed_at
        self._has_moved = False
        self._max_inflated = ON_LOOP_BYTES
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            if not self.is_ended:
                self.fail(400, f"not HTTP/1.1: {error}")
        self._check_growth(len(data))

    def fail(self, status: int, message: str) -> None:
        """Refuse the request being read, and read nothing more; an earlier refusal wins."""
        self._fail_with(self._early or self._server.app.failure(status, message, self.head))

    def _fail_with(self, response: Response) -> None:
        self.end()
        self.due.append(Due(self.head, keep_alive=False, response=response))

    def end(self) -> None:
        """Read nothing more, and drop the body."""
        self.is_ended = True
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.drop()

    def _reset(self) -> None:
        self.began_at = None
        self._url = b""
        self._raw_headers: RawHeaders = []
        self.head: Head | None = None
        self._early: Response | None = None
        self.wants_continue = False
        self._is_upgrade = False

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self.is_ended:
                    return
                data = self._ignore_upgrade() + data[upgrade.args[0] :]
            else:
                return

    def _check_growth(self, size: int) -> None:
        """Bound what the parser buffers without a callback: an endless header, trailer, or chunk
        extension."""
        self._unseen_bytes = 0 if self._has_moved else self._unseen_bytes + size
        if self._unseen_bytes > self._server.limits.header_bytes and not self.is_ended:
            self.fail(431, _HEAD_TOO_LARGE)

    # --- callbacks of the parser -------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._has_moved = True
        if self.began_at is None:
            self.began_at = time.monotonic()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # else a trailer, which means nothing here
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.is_ended:
            return
        self._has_moved = self.has_asked = True
        self._connection.on_head()
        size = len(self._url) + sum(len(n) + len(v) + 4 for n, v in self._raw_headers)
        self.head = head = read_head(self._parser, self._url, self._raw_headers)
        head.peer = self._connection.peer
        head.client = self._connection.client
        problem = problem_of(head, self._raw_headers)
        if size > self._server.limits.header_bytes:
            problem = 431, _HEAD_TOO_LARGE
        if problem is not None:
            self.fail(*problem)
            return
        if self._parser.should_upgrade():
            self._is_upgrade = True
            return
        self._begin_body(head)

    def on_body(self, piece: bytes) -> None:
        self._has_moved = True
        if self.is_ended or self._incoming is None:
            return
        self.wants_continue = False
        self._max_inflated -= self._incoming.feed(piece, self._max_inflated)

    def on_message_complete(self) -> None:
        if self.is_ended or self._is_upgrade:
            return
        self._has_moved = True
        keep_alive = bool(self._parser.should_keep_alive())
        assert self.head is not None
        if self._incoming is not None:
            self._incoming.end()
        self.due.append(Due(self.head, keep_alive, self._early, self._incoming))
        self._incoming = None
        self._reset()
        self.is_ended = not keep_alive

    # --- bodies --------------------------------------------------------------------------------

    def _begin_body(self, head: Head) -> None:
        app, max_bytes = self._server.app, self._server.limits.max_body_bytes(head)
        expects = head.headers.get("expect", "").lower()
        refusal = self._refusal_of(head)
        if refusal is None and int(head.headers.get("content-length", "0")) > max_bytes:
            refusal = app.failure(413, f"the body is larger than {max_bytes} bytes", head)
            refusal.close = True
        if refusal is not None:
            if refusal.close or expects:  # the body may never come
                self._fail_with(refusal)
            self._early = refusal
            return
        self._incoming = Incoming(
            self._server.bodies,
            max_bytes,
            self._changed,
            coding=app.coding(head),
            keep_raw=app.keep_raw,
        )
        if expects and head.version == "1.1":
            self.wants_continue = True
            self._loop.call_soon(self._connection.send_continue)

    def _refusal_of(self, head: Head) -> Response | None:
        try:
            return self._server.app.refuse(head)
        except Exception:  # noqa: BLE001 - logged; the connection lives on
            _log.exception("a request could not be checked")
            return self._server.app.failure(500, "internal error", head)

    @property
    def is_in_thread(self) -> bool:
        return self._incoming is not None and self._incoming.is_in_thread

    def _changed(self, incoming: Incoming) -> None:
        if incoming is not self._incoming:
            return
        if incoming.refusal is not None:
            self._refuse_body(*incoming.refusal)
        elif self.began_at is not None:  # our time is not the sender's
            self.fed_at = time.monotonic()
            self.began_at += incoming.ours_s
            incoming.ours_s = 0.0
        self._connection.on_body_changed()

    def _refuse_body(self, status: int, message: str) -> None:
        """A body that is too large ends reading; the rest of another is read and dropped, then it
        is answered."""
        self._incoming = None
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            self.fail(status, message)
        else:
            self._early = self._server.app.failure(status, message, self.head)

    def _ignore_upgrade(self) -> bytes:
        """Start a new parser; returns the head for it."""
        assert self.head is not None
        keep_alive = bool(self._parser.should_keep_alive())
        head = without_upgrade(self.head, self._url, self._raw_headers, keep_alive=keep_alive)
        began_at = self.began_at
        self._reset()
        self.began_at = began_at
        self._parser = httptools.HttpRequestParser(self)
        return head
