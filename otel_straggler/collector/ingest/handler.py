"""The contract between a receiver and the service behind it.

A receiver knows sockets and framing, a handler knows what the bytes mean. The receiver hands over
one whole `Request` and turns the `Answer` into what its protocol demands: a status line, a
``google.rpc.Status``, a partial success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

Signal = Literal["traces", "metrics", "logs"]
SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")

ContentType = Literal["application/x-protobuf", "application/json"]
PROTOBUF: Final[ContentType] = "application/x-protobuf"
JSON: Final[ContentType] = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One OTLP request as received."""

    signal: Signal
    content_type: ContentType
    body: bytes
    """Decompressed."""
    raw_body: bytes
    """As received, maybe compressed, for forwarding untouched."""
    content_encoding: str
    """Encoding of ``raw_body``: ``""`` or ``"gzip"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the service made of a request.

    A client sends ``busy`` and ``stopping`` again and never sends ``ok`` and ``malformed`` again,
    so ``ok`` with ``rejected`` says that part of the request is lost for good.
    """

    status: Literal["ok", "malformed", "busy", "stopping"]
    rejected: int = 0
    """Spans, points or log records that were refused: a partial success."""
    message: str = ""
    retry_after_s: int = 1


class Handler(Protocol):
    """The service behind a receiver. Both methods are fast and thread-safe."""

    def handle(self, request: Request) -> Answer:
        """Handle one request. Called on the receiver's loop thread or on a gRPC thread."""
        ...

    def is_busy(self, signal: Signal) -> bool:
        """Whether a request would be refused now; asked before a body is read."""
        ...
