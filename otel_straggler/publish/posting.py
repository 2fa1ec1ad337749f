"""Posts JSON to one address that may want TLS, a token or a password, and says how it stands."""

from __future__ import annotations

import base64
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otel_straggler.publish.refusals import Judged, judged
from otel_straggler.transport.client import Response
from otel_straggler.transport.http import HttpClient

_log = logging.getLogger(__name__)

SENT, FAILED, REFUSED, DROPPED = "sent", "failed", "refused", "dropped"
OUTCOMES: Final = (SENT, FAILED, REFUSED, DROPPED)
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to get in. Files are read anew for each request: tokens are renewed in place.

    Attributes:
        timeout_s: for one request as a whole.
        ca_file: PEM file of the authorities to trust instead of the system's.
        cert_file, key_file: our own certificate, where one is wanted.
        token_file: holds a bearer token.
        username, password_file: for basic authentication.
    """

    timeout_s: float = 10.0
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""
    username: str = ""
    password_file: str = ""

    def headers(self) -> dict[str, str]:
        """
        Raises:
            OSError, UnicodeError: a file cannot be read.
        """
        if self.token_file:
            return {"Authorization": f"Bearer {_secret(self.token_file)}"}
        if self.username:
            pair = f"{self.username}:{_secret(self.password_file)}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}

    def client(self, url: str) -> HttpClient:
        return HttpClient(
            url,
            timeout_s=self.timeout_s,
            ca_file=self.ca_file or None,
            client_cert_file=self.cert_file or None,
            client_key_file=self.key_file or None,
        )


class Poster:
    """One address. ``post`` and ``get`` are for one thread, the rest for any.

    Args:
        url: complete, with path.
        access: how to get in.
        logs: whether a change of how it stands is logged.
    """

    def __init__(self, url: str, access: Access, *, logs: bool = True) -> None:
        self._logs = logs
        self.url = url
        self.name = urlsplit(url).netloc
        self._access = access
        self._client = access.client(url)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._trouble = ""

    def post(self, body: bytes, timeout_s: float | None = None) -> Judged:
        """Send, and log it if that changes how the address stands."""
        answer = self._posted(body, timeout_s)
        self._note(answer)
        return answer

    def get(self, url: str) -> Response:
        """Another page of the same server."""
        client = self._access.client(url)
        try:
            return client.get(headers=self._access.headers())
        except (OSError, UnicodeError) as error:
            return Response(0, error=str(error))
        finally:
            client.close()

    def count(self, outcome: str, number: int = 1) -> None:
        with self._lock:
            self._counts[outcome] += number

    def counts(self) -> Mapping[str, int]:
        """By outcome; requests, but for what was dropped: alerts."""
        with self._lock:
            return {outcome: self._counts[outcome] for outcome in OUTCOMES}

    def close(self) -> None:
        self._client.close()

    def _posted(self, body: bytes, timeout_s: float | None) -> Judged:
        try:
            headers = self._access.headers()
        except (OSError, UnicodeError) as error:
            return Judged("barred", f"{self.url}: its secret cannot be read ({error}).")
        response = self._client.post(body, content_type=_JSON, headers=headers, timeout_s=timeout_s)
        return judged(response, self.url)

    def _note(self, answer: Judged) -> None:
        outcome = {"taken": SENT, "later": FAILED}.get(answer.fate, REFUSED)
        self.count(outcome)
        before, self._trouble = self._trouble, answer.kind_of_trouble
        if not self._logs:
            return
        if self._trouble and self._trouble != before:
            _log.warning("alerts are not taken: %s", answer.why)
        elif before and not self._trouble:
            _log.warning("alerts are taken again: %s", self.url)


def _secret(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()
