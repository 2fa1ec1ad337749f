"""Messages between a rank and its agent: a length of 4 bytes (big-endian), then a JSON object.

===========  ====================================================================================
from a rank  "init": who it is; "watch": its page of beats, as a file descriptor; "timeouts":
             restored ones; "calculate": learn them; "diagnosed": stacks and step, or its last
             collective; "bye": it is watched no longer
from the     "config": answer to "init"; "ok", "timeouts", "not_ready": other answers; "diagnose":
agent        write stacks; "refused": and why, then the connection ends
===========  ====================================================================================
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_straggler.errors import StragglerError, UsageError

VERSION: Final = 1
MAX_FRAME: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">I")
Message = dict[str, Any]


class RankMonitorClientError(UsageError):
    """Raised by ``RankMonitorClient``: it is used wrongly, or its agent cannot be reached."""


class ProtocolError(StragglerError):
    """A peer sent something that makes no sense.

    Attributes:
        reason: one word, under which it is counted.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame.

    Raises:
        ProtocolError: it is too long.
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise ProtocolError("too_long", f"a message of {len(body)} bytes, above {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def add(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole now.

        Raises:
            ProtocolError: the stream is not of such messages.
        """
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if not 0 < length <= MAX_FRAME:
                raise ProtocolError("length", f"{length} bytes announced, above {MAX_FRAME}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield _message(body)


def _message(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("json", str(error)[:200]) from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ProtocolError("json", "no object with a type")
    return message


def text(message: Message, key: str, max_chars: int = 300) -> str:
    """A field that is text.

    Raises:
        ProtocolError: it is not there, or something else.
    """
    value = message.get(key)
    if not isinstance(value, str) or len(value) > max_chars:
        raise ProtocolError("field", f"{key} is {value!r:.100}; expected a text")
    return "".join(c if c.isprintable() else " " for c in value)


def whole(message: Message, key: str, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
    """A field that is a whole number.

    Raises:
        ProtocolError: it is not there, or something else.
    """
    value = message.get(key)
    if type(value) is not int or not minimum <= value <= maximum:
        raise ProtocolError("field", f"{key} is {value!r:.100}; expected {minimum} to {maximum}")
    return value


def texts(message: Message, key: str, max_items: int) -> list[str]:
    """A field that is a list of printable texts without repetition.

    Raises:
        ProtocolError: it is not there, or something else.
    """
    value = message.get(key)
    is_list = isinstance(value, list) and len(value) <= max_items
    if not is_list or not all(map(_is_name, value)):  # type: ignore[arg-type]
        raise ProtocolError("field", f"{key} is {value!r:.100}; expected a list of texts")
    if len(set(value)) != len(value):  # type: ignore[arg-type]
        raise ProtocolError("field", f"{key} names something twice")
    return value  # type: ignore[return-value]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 300 and value.isprintable()
