"""Whom a collector notifies itself; posts JSON to one address with TLS, a token or a password, and
explains failures."""

from __future__ import annotations

import base64
import logging
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from otel_straggler.model.alert import Severity
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.regular_files import read_small_text
from otel_straggler.secret import without_path, without_secrets
from otel_straggler.setting import (
    ANY_TEXT,
    SWITCH,
    above,
    choice,
    is_base_url,
    is_url,
    number,
    option,
    text,
    texts,
)

_log = logging.getLogger(__name__)

SENT, FAILED, REFUSED, DROPPED = "sent", "failed", "refused", "dropped"
OUTCOMES: Final = (SENT, FAILED, REFUSED, DROPPED)
_JSON: Final = "application/json"
_URL: Final = "an http:// or https:// URL without a name or password in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to authenticate. Files are read again for each request: tokens are renewed in place."""

    timeout_s: float = option(10.0, above(0, 60), "of one request")
    ca_file: str = option(
        "", ANY_TEXT, "PEM file of the authorities to trust instead of the system's"
    )
    cert_file: str = option("", ANY_TEXT, "the collector's own certificate, where one is wanted")
    key_file: str = option("", ANY_TEXT, "the key of that certificate")
    token_file: str = option("", ANY_TEXT, "holds a bearer token; read again for each request")
    username: str = option("", ANY_TEXT, "for basic authentication")
    password_file: str = option("", ANY_TEXT, "for basic authentication")

    def headers(self) -> dict[str, str]:
        """OSError or InputError if a file cannot be read."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings(Access):
    """Whom the collector itself notifies; by default nobody. Alertmanagers or one webhook; both
    would notify people twice."""

    alertmanagers: tuple[str, ...] = option(
        (),
        texts(
            "a list of http:// or https:// URLs without a name or password in it, e.g. "
            "http://alertmanager:9093",
            lambda urls: all(map(is_base_url, urls)) and len(set(urls)) == len(urls),
        ),
        "base URLs of all replicas, e.g. http://alertmanager:9093; each gets everything, in mode "
        "observe too (labelled so)",
    )
    webhook: str = option(
        "",
        text(_URL, lambda url: not url or is_url(url)),
        "URL that understands Alertmanager's webhooks; it is notified only in mode page",
    )
    min_severity: Severity = option(  # noqa: RUF009  a field
        "warning", choice("info", "warning", "critical"), "for a webhook: info, warning or critical"
    )
    send_resolved: bool = option(True, SWITCH, "whether a webhook is notified when an alert ends")
    resend_s: float = option(
        60.0,
        number(0.1, 3_600),
        "from one message on a firing alert to an Alertmanager to the next",
    )
    interval_s: float = option(
        60.0,
        number(0.1, 86_400),
        "a webhook gets at most one message in so long; what is critical waits for the last "
        "message with something new that was critical, never for one of warnings",
    )
    repeat_s: float = option(14_400.0, number(60), "and one without news after so long")
    external_url: str = option(
        "",
        text(_URL, lambda url: not url or is_base_url(url)),
        "address of this collector for people, for links; that of its pages if empty",
    )

    @property
    def is_on(self) -> bool:
        return bool(self.alertmanagers or self.webhook)


class Poster:
    """One address. ``post`` and ``get`` are for one thread, the rest for any.

    Args:
        url: complete, with path.
        logs: whether failures and recoveries are logged.
        has_secret_path: whether only its host may be shown, as of a chat's webhook.

    Attributes:
        shown: the URL without what is secret, for messages.
        trouble: why the last request was not accepted; empty if it was.
    """

    def __init__(
        self, url: str, access: Access, *, logs: bool = True, has_secret_path: bool = False
    ) -> None:
        self._logs = logs
        self.url = url
        self.shown = without_path(url) if has_secret_path else without_secrets(url)
        self.name = urlsplit(url).netloc
        self._access = access
        self._client = access.client(url)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._kind_of_trouble = self.trouble = ""

    def post(self, body: bytes, timeout_s: float | None = None) -> Answer:
        try:
            headers = self._access.headers()
        except (OSError, ValueError) as error:
            answer = Answer("blocked", f"{self.shown}: its secret cannot be read ({error}).")
        else:
            post = self._client.post
            response = post(body, content_type=_JSON, headers=headers, timeout_s=timeout_s)
            answer = answer_of(response, self.shown)
        self._record(answer)
        return answer

    def get(self, url: str) -> Response:
        """Another page of the same server."""
        client = self._access.client(url)
        try:
            return client.get(headers=self._access.headers())
        except (OSError, ValueError) as error:
            return Response(0, error=str(error))
        finally:
            client.close()

    def count(self, outcome: str, number: int = 1) -> None:
        with self._lock:
            self._counts[outcome] += number

    def counts(self) -> Mapping[str, int]:
        """By outcome: requests; dropped: alerts."""
        with self._lock:
            return {outcome: self._counts[outcome] for outcome in OUTCOMES}

    def close(self) -> None:
        self._client.close()

    def _record(self, answer: Answer) -> None:
        self.count({"accepted": SENT, "later": FAILED}.get(answer.outcome, REFUSED))
        before, self._kind_of_trouble = self._kind_of_trouble, answer.kind_of_trouble
        is_new = self._kind_of_trouble != before
        if is_new:
            self.trouble = answer.why
        if not self._logs:
            return
        if is_new and answer.why:
            _log.warning("alerts are not accepted: %s", answer.why)
        elif before and not self._kind_of_trouble:
            _log.warning("alerts are accepted again: %s", self.shown)


def _secret(path: str) -> str:
    return read_small_text(path, follow=True).strip()


Outcome = Literal["accepted", "later", "invalid", "blocked"]
"""``later``: the same may succeed soon. ``invalid``: its content is refused for good. ``blocked``:
somebody must correct the configuration."""

TOO_LARGE: Final = 413
_LATER: Final = frozenset({408, 425, 429})
_INVALID: Final = frozenset({400, 413, 422})
_LONGEST: Final = 200
_REASON: Final = re.compile(r"certificate verify failed: (.+?) \(_ssl")


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer.

    Attributes:
        why: a message; empty if it was accepted.
        status: HTTP status; 0 if there was no answer.
    """

    outcome: Outcome
    why: str = ""
    status: int = NO_ANSWER
    retry_after_s: float | None = None

    @property
    def kind_of_trouble(self) -> str:
        """The same for every try that fails the same way."""
        return "" if self.outcome == "accepted" else f"{self.status} {self.why.partition('(')[0]}"


def answer_of(response: Response, address: str) -> Answer:
    status = response.status
    if response.is_success:
        return Answer("accepted", status=status)
    if status == NO_ANSWER:
        outcome, message = _of_no_answer(response.error)
        return Answer(outcome, f"{address}: {message}")
    message = f"answered {status}{_text_of(response)}"
    if status in _LATER or status >= 500:
        why = f"{address}: {message}; it is tried again."
        return Answer("later", why, status, response.retry_after_s)
    outcome = "invalid" if status in _INVALID else "blocked"
    return Answer(outcome, f"{address}: {message}. {_remedy(response)}", status)


def tried_once(why: str) -> str:
    """The message of :func:`answer_of` where nothing is tried again, as in a command.

    >>> tried_once("http://a:1: nothing listens there. Is it running? It is tried again.")
    'http://a:1: nothing listens there. Is it running?'
    """
    return why.replace("; it is tried again.", ".").replace(" It is tried again.", "")


def _of_no_answer(error: str) -> tuple[Outcome, str]:
    text = " ".join(error.split())
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "blocked", _of_certificate(text)
    if "CERTIFICATE_REQUIRED" in text or "HANDSHAKE_FAILURE" in text or "ALERT" in text:
        message = f"TLS was refused ({_short(text)})."
        remedy = "If it wants a certificate, name one in cert_file and key_file."
        return "blocked", f"{message} {remedy}"
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return "blocked", "does not speak TLS there. Use http://, or the port that speaks it."
    if "SSLError" in text or "SSL" in text.partition(":")[0]:
        return "blocked", f"TLS failed ({_short(text)}). Check ca_file, cert_file and key_file."
    if "resolve" in text or "getaddrinfo" in text or "Name or service not known" in text:
        return "later", f"the name is not known ({_short(text)}). Check the URL; it is tried again."
    if "refused" in text:
        return "later", "nothing listens there. Is it running? It is tried again."
    if "imeout" in text or "imed out" in text or "time-out" in text:
        return "later", "no answer in time. It is tried again."
    return "later", f"no answer ({_short(text)}). It is tried again."


def _of_certificate(text: str) -> str:
    result = _REASON.search(text)
    reason = result[1] if result else "certificate verify failed"
    if "mismatch" in reason or "doesn't match" in reason:
        return f"its certificate is for another name ({reason}). Use the name that it is for."
    if "expired" in reason:
        return f"its certificate has expired ({reason}). Renew it there."
    return f"its certificate is not trusted ({reason}). Name who signed it in ca_file."


def _remedy(response: Response) -> str:
    status = response.status
    if 300 <= status < 400:
        location = _short(without_secrets(response.headers.get("location", "")))
        return f"Redirects are not followed; name the final address{location and f', {location}'}."
    if status in (401, 403):
        return "Check token_file, or username and password_file."
    if status in (404, 405):
        return "Check the path of the URL."
    if status == TOO_LARGE:
        return "It is too large for it, even cut to the least."
    return "It is not sent again as it is."


def _text_of(response: Response) -> str:
    parts = response.body[: 4 * _LONGEST].decode("utf-8", "replace")
    text = _short(" ".join(parts.split()))
    return f" ({text})" if text else ""


def _short(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 3]}..."
