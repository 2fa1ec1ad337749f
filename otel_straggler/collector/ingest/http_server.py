"""A server on asyncio, of HTTP/1.1 or another protocol: sockets, deadlines, who gives way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from email.utils import formatdate
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from otel_straggler.collector.access.tls import HANDSHAKE_S, ServerTls
from otel_straggler.collector.ingest.http_bodies import Bodies
from otel_straggler.collector.ingest.http_connection import Connection
from otel_straggler.collector.ingest.http_messages import App, HttpLimits

_log = logging.getLogger(__name__)

_SWEEP_S = 0.25
_BACKLOG = 4096
_AT_ONCE = 64
"""Connections that asyncio accepts at once; uvloop has a rule of its own."""
_GONE_S = 60.0
"""A peer whose machine confirms nothing for so long is gone; by default a quarter of an hour."""
_FULL = (
    "all %d connections of %s are taken: for each new one, that is closed which has asked for "
    "nothing for longest (counted as straggler_collector_connections_cut). If nobody attacks it, "
    "fewer clients should keep connections open"
)
_NO_SUCH_FAMILY = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class Served(Protocol):
    """A connection as its server sees it.

    Attributes:
        client: whom it is counted for.
        unsent_bytes: of answers.
        has_asked_nothing: it is open, and no request has begun.
        slow_since: since when its peer has been sending a request, or not reading an answer.
    """

    client: str

    @property
    def unsent_bytes(self) -> int: ...

    @property
    def has_asked_nothing(self) -> bool: ...

    @property
    def slow_since(self) -> float | None: ...

    def check_deadline(self, now_s: float) -> None: ...

    def evict(self) -> None:
        """Make room for another."""

    def close_if_idle(self) -> None: ...

    def abort(self) -> None: ...


Connect: TypeAlias = "Callable[[HttpServer, asyncio.AbstractEventLoop], Served]"


class HttpServer:
    """Listening sockets, their connections, and the task that checks deadlines, on the event loop
    that called `start`.

    Args:
        tls: None: in the clear.
        connect: makes a connection; None: of HTTP/1.1, answered by ``app``.
    """

    def __init__(
        self,
        app: App,
        limits: HttpLimits,
        tls: ServerTls | None = None,
        *,
        connect: Connect | None = None,
    ) -> None:
        self.app = app
        self.limits = limits
        self._tls = tls
        self._connect: Connect = connect or Connection
        self.held = Held()
        self.evictions = Evictions()
        self.bodies = Bodies(limits.buffered_bytes)
        self.is_closing = False
        self._servers: list[asyncio.Server] = []
        self._watch: asyncio.Task[None] | None = None
        self.address = self._path = ""
        self._date = (0, b"")
        self.fixed = b""
        self.fix_headers()

    def fix_headers(self) -> None:
        """Use ``app.fixed_headers`` as they are now."""
        headers = self.app.fixed_headers.items()
        self.fixed = b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers)

    @property
    def connections(self) -> set[Served]:
        return self.held.connections

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address with its real port; raises as :func:`bind`."""
        loop = asyncio.get_running_loop()
        sockets = bind(host, port)
        name = sockets[0].getsockname()
        self.address = f"{name[0]} port {name[1]}"
        for bound in sockets:
            self._servers.append(
                await loop.create_server(
                    lambda: self._new(loop),
                    sock=bound,
                    backlog=_AT_ONCE,
                    ssl=None if self._tls is None else self._tls.context,
                    ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
                )
            )
            bound.listen(_BACKLOG)  # how many may wait is another matter
        self._watch = loop.create_task(self._sweep())
        return str(name[0]), int(name[1])

    async def start_unix(self, path: str) -> None:
        """Listen on a Unix socket, too, without TLS; raises as :func:`bind_unix`."""
        loop = asyncio.get_running_loop()
        bound = bind_unix(path)
        self._path = path
        self._servers.append(
            await loop.create_unix_server(lambda: self._new(loop), sock=bound, backlog=_AT_ONCE)
        )

    def _new(self, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
        connection: Any = self._connect(self, loop)
        return cast("asyncio.Protocol", connection)

    async def stop(self, deadline_s: float) -> None:
        """Accept nothing more, finish begun requests, then close."""
        self.is_closing = True
        for server in self._servers:
            server.close()
        until = time.monotonic() + deadline_s
        for connection in tuple(self.connections):
            connection.close_if_idle()
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in tuple(self.connections):
            connection.abort()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        for server in self._servers:
            await server.wait_closed()
        if self._path:
            Path(self._path).unlink(missing_ok=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = time.monotonic()
            if self._tls is not None:
                self._tls.refresh()
            for connection in tuple(self.connections):
                connection.check_deadline(now_s)

    def has_room(self, client: str) -> bool:
        """Whether a client may have one more open, perhaps in place of another: where one client
        has the most, one of its own gives way."""
        if len(self.connections) < self.limits.connections or self.is_closing:
            return True
        has_room = self.evictions.make_room(self.held, client, time.monotonic())
        if has_room and self.evictions.count == 1:
            _log.warning(_FULL, self.limits.connections, self.address)
        return has_room

    def has_much_unsent(self) -> bool:
        """Whether too many answers are unread. Cost: O(connections), for large answers."""
        unsent = sum(connection.unsent_bytes for connection in self.connections)
        return unsent > self.limits.unsent_bytes

    def date(self) -> bytes:
        now = int(time.time())
        if self._date[0] != now:
            self._date = now, f"Date: {formatdate(now, usegmt=True)}\r\n".encode("latin-1")
        return self._date[1]


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind every address of the host ("localhost" may have two) on one and the same port.

    Raises:
        OSError: the address is taken, or is none of this machine.
    """
    bound: list[socket.socket] = []
    refused: list[OSError] = []
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, _, _, _, address in dict.fromkeys(infos):
            same_port = bound[0].getsockname()[1] if bound else port
            try:
                bound.append(_bind_one(family, (address[0], same_port, *address[2:])))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                refused.append(error)
        if not bound:
            raise refused[0]
    except BaseException:
        for one in bound:
            one.close()
        raise
    return bound


def bind_unix(path: str) -> socket.socket:
    """Bind a path that everybody may connect to: who they are is asked of the kernel. A socket that
    nobody serves any more is replaced.

    Raises:
        OSError: somebody serves it, or the path is something else.
    """
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == errno.ECONNREFUSED:
                Path(path).unlink()
    one = socket.socket(socket.AF_UNIX)
    try:
        one.bind(path)
        Path(path).chmod(0o666)
        one.setblocking(False)
    except BaseException:
        one.close()
        raise
    return one


def _bind_one(family: int, address: tuple[object, ...]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; inherited too
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_GONE_S * 1000))
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.setblocking(False)
    except BaseException:
        one.close()
        raise
    return one


# --- who gives way -------------------------------------------------------------------------------

_TURNS = 3
"""Of the event loop until a client's first bytes have been read."""
_NONE_S = 0.1
"""Where no connection could give way, until that is looked at again: it costs milliseconds."""
_SLOW_S = 1.0
"""A slower request or answer may be cut off where no connection is idle."""


class Evictions:
    """Connections in the order in which they give way: first those that never had a request, then
    those between two requests, each the longest idle first, then those whose requests or answers
    take longest.

    Otherwise some hundred clients that send a byte now and then would keep everybody else out. A
    new connection is always admitted, and safe until its request could have been read. Where a
    client has more connections than the new one's, only its own give way, however young.

    Attributes:
        count: connections evicted so far.
    """

    def __init__(self) -> None:
        self._never_asked: dict[Served, None] = {}
        self._idle: dict[Served, None] = {}
        self._busy: dict[Served, None] = {}
        self._none_until_s = 0.0
        self.count = 0

    def add_new(
        self, connection: Served, loop: asyncio.AbstractEventLoop, turns: int = _TURNS
    ) -> None:
        if turns:
            loop.call_soon(self.add_new, connection, loop, turns - 1)
        elif connection.has_asked_nothing:
            self._never_asked[connection] = None

    def add_idle(self, connection: Served) -> None:
        self.remove(connection)
        self._idle[connection] = None

    def add_ending(self, connection: Served) -> None:
        self.remove(connection)
        self._never_asked[connection] = None

    def add_busy(self, connection: Served) -> None:
        """It has a request."""
        self.remove(connection)
        self._busy[connection] = None

    def remove(self, connection: Served) -> None:
        for table in (self._never_asked, self._idle, self._busy):
            table.pop(connection, None)

    def make_room(self, held: Held, client: str, now_s: float) -> bool:
        """Evict one; False if none is idle or slow. Cost: O(1) where a client holds most of them,
        else O(connections), ten times a second if none can give way."""
        busiest, n_held = held.busiest()
        if busiest != client and n_held > held.count_of(client) + 1:
            theirs = (each for each in self._in_order() if each.client == busiest)
            if self._evict_first(theirs, now_s, 0.0):
                return True
        if now_s < self._none_until_s:
            return False
        if self._evict_first(self._in_order(), now_s, _SLOW_S):
            return True
        self._none_until_s = now_s + _NONE_S
        return False

    def _in_order(self) -> Iterator[Served]:
        return chain(self._never_asked, self._idle, self._busy)

    def _evict_first(self, among: Iterator[Served], now_s: float, slow_s: float) -> bool:
        for connection in among:
            since_s = connection.slow_since
            if connection not in self._busy or (since_s is not None and now_s - since_s > slow_s):
                self.count += 1
                self.remove(connection)
                connection.evict()
                return True
        return False


class Held:
    """The open connections, and how many each client has."""

    def __init__(self) -> None:
        self.connections: set[Served] = set()
        self._by_client: Counter[str] = Counter()

    def add(self, connection: Served) -> None:
        self.connections.add(connection)
        self._by_client[connection.client] += 1

    def discard(self, connection: Served) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._by_client[connection.client] -= 1
            if not self._by_client[connection.client]:
                del self._by_client[connection.client]

    def count_of(self, client: str) -> int:
        return self._by_client[client]

    def busiest(self) -> tuple[str, int]:
        return max(self._by_client.items(), key=itemgetter(1))
