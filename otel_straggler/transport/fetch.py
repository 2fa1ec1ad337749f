"""One GET that never takes longer than it was allowed, whatever the other side does."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

LARGEST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came back in time.

    Attributes:
        status: HTTP status, 0 if there was no answer in time.
        body: complete, or empty.
        error: why there was no answer.
    """

    status: int
    body: bytes = b""
    error: str = ""


@dataclass(slots=True)
class _Answer:
    fetched: Fetched | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Fetcher:
    """Fetches, one at a time. A name server that hangs cannot be timed out from inside, so the
    request runs in a thread of its own, which is left behind if it is late.

    Args:
        headers: sent with every request.
    """

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})
        self._running: threading.Thread | None = None

    def get(self, url: str, timeout_s: float) -> Fetched:
        """Wait ``timeout_s`` at most. While an earlier request is still left behind: no request."""
        if self._running is not None and self._running.is_alive():
            return Fetched(0, error="the request before is still not answered")
        answer = _Answer()
        arguments = (url, timeout_s, answer)
        self._running = threading.Thread(
            target=self._fetch, args=arguments, name="otel-straggler-fetch", daemon=True
        )
        self._running.start()
        if answer.done.wait(timeout_s) and answer.fetched is not None:
            return answer.fetched
        return Fetched(0, error=f"no answer within {timeout_s:g} s")

    def _fetch(self, url: str, timeout_s: float, answer: _Answer) -> None:
        import requests

        try:
            with requests.get(
                url, headers=self._headers, timeout=timeout_s, stream=True, allow_redirects=False
            ) as response:
                body = _read(response, time.monotonic() + timeout_s)
                answer.fetched = Fetched(response.status_code, body)
        except (requests.RequestException, OSError, ValueError) as error:
            answer.fetched = Fetched(0, error=f"{type(error).__name__}: {error}")
        finally:
            answer.done.set()


def _read(response: object, deadline_s: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_content(65_536):  # type: ignore[attr-defined]
        parts.append(part)
        size += len(part)
        if size > LARGEST_BYTES or time.monotonic() > deadline_s:
            message = "the answer was too large or too slow"
            raise ValueError(message)
    return b"".join(parts)
