"""The HTTP client: TLS, time-outs, one kept connection.

It knows nothing of what it sends. A failure is an answer (``Response.error``), never an exception,
because every caller is a loop that has to go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from otel_straggler.transport.response import NO_ANSWER, Response
from otel_straggler.transport.root_cause import root_cause

if TYPE_CHECKING:
    import requests

LARGEST_ANSWER_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0


class HttpClient:
    """Posts bodies to one URL, or gets it, over a kept connection. For one thread at a time.

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
        all_headers = {**self._headers, **(headers or {}), "Content-Type": content_type}
        if content_encoding:
            all_headers["Content-Encoding"] = content_encoding
        return self._answer("POST", self.url, body, all_headers, timeout_s)

    def get(
        self,
        query: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Ask, with an encoded query, and wait for the answer in the same way."""
        url = f"{self.url}?{query}" if query else self.url
        return self._answer("GET", url, None, {**self._headers, **(headers or {})}, timeout_s)

    def _answer(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        timeout_s: float | None,
    ) -> Response:
        import requests

        limit_s = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        try:
            return self._exchange(method, url, body, headers, max(limit_s, 0.001))
        except (requests.RequestException, OSError, ValueError) as error:
            self.close()
            return Response(NO_ANSWER, error=f"{type(error).__name__}: {root_cause(error)}")

    def _exchange(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], limit_s: float
    ) -> Response:
        deadline_s = time.monotonic() + limit_s
        with self._connected().request(
            method,
            url,
            data=body,
            headers=headers,
            timeout=(min(limit_s, CONNECT_TIMEOUT_S), limit_s),
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

            session = requests.Session()
            # Without an auth object requests looks into ~/.netrc and replaces our own header.
            session.auth = _keep_own_headers
            # Proxies and certificates of the environment are looked up once per connection: with
            # every request that costs more than all else that requests does.
            found = session.merge_environment_settings(
                self.url, {}, True, self._verify, self._certificate
            )
            session.proxies.update(found["proxies"])
            session.verify, session.cert = found["verify"], found["cert"]
            session.trust_env = False
            self._session = session
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
    answer.raw.enforce_content_length = True  # urllib3 before 2 takes half an answer for all of it
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
