"""A streamed answer on its way: one piece at a time, and never faster than the peer reads."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from otel_straggler.receive.http_messages import ByteStream

_log = logging.getLogger(__name__)

_END = b"0\r\n\r\n"


class StreamSender:
    """Sends one stream over a transport; belongs to one connection.

    The next piece is asked for when the one before has left our buffer (below asyncio's high-water
    mark), so a peer that does not read holds at most one piece and that mark.

    Args:
        transport: asyncio's.
        stream: what to send.
        is_chunked: in chunks (HTTP/1.1); else until the connection closes.
    """

    def __init__(self, transport: Any, stream: ByteStream, *, is_chunked: bool) -> None:
        self._transport = transport
        self._stream = stream
        self._is_chunked = is_chunked
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_whole = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends when the stream has, or after :meth:`stop`. It raises nothing but
        the cancellation."""
        self._task = asyncio.get_running_loop().create_task(self._send())
        self._task.add_done_callback(lambda _: self._close())
        return self._task

    def pause(self) -> None:
        """The system takes no more for now."""
        self._may_write.clear()

    def resume(self) -> None:
        self._may_write.set()

    def stop(self) -> None:
        """End it now, in good order; may be called at any time."""
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        try:
            async for piece in self._stream:
                await self._may_write.wait()
                if self._transport.is_closing():
                    return
                self._transport.write(self._framed(piece))
        except Exception:  # noqa: BLE001 - logged; the peer sees that the stream broke off
            self._is_whole = False
            _log.exception("a stream could not be continued")

    def _close(self) -> None:
        """Also of a stream that was stopped before its first piece."""
        if self._is_whole and self._is_chunked and not self._transport.is_closing():
            self._transport.write(_END)
        try:
            self._stream.close()
        except Exception:  # noqa: BLE001 - logged; the connection ends all the same
            _log.exception("a stream could not be closed")

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece
