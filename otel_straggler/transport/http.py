"""One HTTP client for everything that leaves this process: TLS, time-outs, retry decision.

It knows nothing of what it sends. A failure is an answer (``Response.error``), never an exception,
because every caller is a loop that has to go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import requests

NO_ANSWER = 0
RETRYABLE_STATUS = frozenset({429, 502, 503, 504})
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
LONGEST_RETRY_AFTER_S = 300.0
LARGEST_ANSWER_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Response:
    """What came back.

    Attributes:
        status: HTTP status, ``NO_ANSWER`` if there was none.
        headers: response headers, names in lower case.
        body: at most 4 MiB of it.
        error: why there was no answer, for a log; empty if there was one.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def retry_after_s(self) -> float | None:
        """The server's Retry-After, in seconds from now; None if absent or unreadable."""
        return parse_retry_after(self.headers.get("retry-after", ""), time.time())


def parse_retry_after(value: str, now_s: float) -> float | None:
    """Read a Retry-After header: seconds, or a date.

    >>> parse_retry_after("7", 0.0)
    7.0
    >>> parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0)
    40.0
    >>> parse_retry_after("soon", 0.0)
    """
    if not value:
        return None
    try:
        wait_s = float(int(value))
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(value).timestamp() - now_s
        except ValueError:
            return None
    return min(max(wait_s, 0.0), LONGEST_RETRY_AFTER_S)


def is_retryable(response: Response) -> bool:
    """Whether the same request may be sent again (OTLP specification, plus lost connections)."""
    return response.status == NO_ANSWER or response.status in RETRYABLE_STATUS


def retry_delay_s(
    attempt: int, retry_after_s: float | None = None, rng: Callable[[], float] | None = None
) -> float:
    """Seconds to wait before try number ``attempt + 1``: exponential, jittered, capped.

    Args:
        attempt: failed tries so far, from 1.
        retry_after_s: what the server asked for; the wait is never shorter.
        rng: numbers in [0, 1), for jitter; the middle if left out.

    >>> [retry_delay_s(n) for n in (1, 2, 3, 99)]
    [0.75, 1.5, 3.0, 22.5]
    >>> retry_delay_s(1, retry_after_s=10.0)
    10.0
    """
    ceiling_s = min(FIRST_DELAY_S * 2.0 ** min(attempt - 1, 30), LONGEST_DELAY_S)
    jitter = 0.5 if rng is None else rng()
    return max(ceiling_s * (0.5 + 0.5 * jitter), retry_after_s or 0.0)


class HttpClient:
    """Posts bodies to one URL over a kept-alive connection. For one thread at a time.

    Args:
        url: complete, with path.
        headers: sent with every request.
        timeout_s: for one request as a whole, connecting included.
        ca_file: PEM file of the authorities to trust instead of the system's.
        client_cert_file, client_key_file: for mutual TLS; the key may be in the first.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        ca_file: str | None = None,
        client_cert_file: str | None = None,
        client_key_file: str | None = None,
    ) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self._headers = dict(headers or {})
        self._verify: str | bool = ca_file or True
        self._certificate = _certificate(client_cert_file, client_key_file)
        self._session: requests.Session | None = None
        _preload()

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
        import requests

        all_headers = {**self._headers, **(headers or {}), "Content-Type": content_type}
        if content_encoding:
            all_headers["Content-Encoding"] = content_encoding
        limit_s = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        try:
            return self._exchange(body, all_headers, max(limit_s, 0.001))
        except (requests.RequestException, OSError, ValueError) as error:
            self.close()
            return Response(NO_ANSWER, error=f"{type(error).__name__}: {error}")

    def _exchange(self, body: bytes, headers: dict[str, str], limit_s: float) -> Response:
        deadline_s = time.monotonic() + limit_s
        with self._connected().post(
            self.url,
            data=body,
            headers=headers,
            timeout=(min(limit_s, CONNECT_TIMEOUT_S), limit_s),
            verify=self._verify,
            cert=self._certificate,
            allow_redirects=False,
            stream=True,
        ) as answer:
            content = _read_answer(answer, deadline_s)
            return Response(
                answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, content
            )

    def close(self) -> None:
        """Drop the connection; the next post opens a fresh one. Safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connected(self) -> requests.Session:
        if self._session is None:
            import requests

            self._session = requests.Session()
            # Without an auth object requests looks into ~/.netrc and replaces our own header.
            self._session.auth = _keep_own_headers
        return self._session


def _preload() -> None:
    """Import now what posting needs: a fork while a thread imports leaves the child half of it."""
    import encodings.idna

    import requests

    del encodings, requests


def _keep_own_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _certificate(cert_file: str | None, key_file: str | None) -> str | tuple[str, str] | None:
    if cert_file and key_file:
        return (cert_file, key_file)
    return cert_file


def _read_answer(answer: requests.Response, deadline_s: float) -> bytes:
    """The body, bounded in size and, for a server that drips bytes, in time."""
    parts: list[bytes] = []
    room = LARGEST_ANSWER_BYTES
    for part in answer.iter_content(16_384):
        parts.append(part[:room])
        room -= len(part)
        if room <= 0:
            answer.close()
            break
        if time.monotonic() > deadline_s:
            msg = "the answer took longer than the time-out"
            raise TimeoutError(msg)
    return b"".join(parts)
