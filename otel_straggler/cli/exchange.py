"""One request to a server and its answer, in JSON; what goes wrong is one sentence."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from otel_straggler.cli.report_table import printable
from otel_straggler.errors import ConfigError, InputError, UnavailableError, describe
from otel_straggler.transport.tls_advice import tls_advice

TIMEOUT_S = 5.0
_REFUSED = 400
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Who is asked.

    Attributes:
        url: without a slash at its end.
        expected: what should be there, for people.
        remedy: what to do where it is not.
    """

    url: str
    expected: str
    remedy: str

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """What a GET gives, or the POST of ``body``, or ``method``; None if that is nothing.

        Raises:
            InputError: it refuses, or is another program.
            UnavailableError: nobody answers.
            ConfigError: the URL is none.
        """
        where = self.url + path
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        try:
            request = urllib.request.Request(  # noqa: S310 (checked by base_url)
                where, data, headers, method=method
            )
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                content = answer.read()
        except urllib.error.HTTPError as error:
            raise InputError(self._why(where, error)) from error
        except OSError as error:
            reason = str(getattr(error, "reason", None) or error)
            remedy = remedy_of(where, reason, self.remedy)
            message = describe(where=where, value=reason, expected=self.expected, remedy=remedy)
            raise UnavailableError(message) from error
        except (ValueError, http.client.HTTPException) as error:
            raise ConfigError(self._wrong(where, printable(str(error)))) from error
        return self._read(where, content)

    def _read(self, where: str, content: bytes) -> Any:
        if not content:
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InputError(self._wrong(where, "no JSON")) from error

    def _why(self, where: str, error: urllib.error.HTTPError) -> str:
        """The server's own sentence where it has one."""
        try:
            told = json.loads(error.read())
        except (OSError, ValueError, http.client.HTTPException):
            told = ""
        if isinstance(told, dict):
            told = told.get("error") or told.get("message") or ""
        sentence = printable(str(told), 1_000)
        if error.code == _REFUSED and sentence:
            return f"{where}: {sentence}"
        value = f"HTTP {error.code}" + (f": {sentence}" if sentence else "")
        return self._wrong(where, value)

    def _wrong(self, where: str, value: str) -> str:
        return describe(where=where, value=value, expected=self.expected, remedy=self.remedy)


def remedy_of(url: str, reason: str, usual: str) -> str:
    """What to do where nobody answers a command: ``usual``, unless TLS is in the way."""
    ca = "Who signed its certificate is named in a file: export SSL_CERT_FILE=/path/to/ca.pem"
    own = "commands have none of their own; ask an address that wants none, or --history."
    advice = tls_advice(url, reason, ca=ca, own=own)
    if not advice or not url.startswith("https://"):
        return f"{usual} {advice}".rstrip()  # a server that dies cuts connections, too
    return advice


def _has_place(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond all, or half of an IPv6 address
        return False


def base_url(url: str, option: str, example: str) -> str:
    """Without a slash at its end; HOST:PORT alone, as a collector prints it, is taken for HTTP.

    Raises:
        ConfigError: it is none of HTTP.
    """
    if _HOST_AND_PORT.fullmatch(url):
        url = f"http://{url}"
    if url.startswith(("http://", "https://")) and not _has_place(url):
        expected = f"a host and a port of 1 to 65535, as in {example}"
        remedy = f"Correct {option}."
        raise ConfigError(describe(where=option, value=url, expected=expected, remedy=remedy))
    if not url.startswith(("http://", "https://")):
        expected = f"a URL such as {example}"
        remedy = f"Give {option} with http:// or https:// before it."
        raise ConfigError(describe(where=option, value=url, expected=expected, remedy=remedy))
    return url.rstrip("/")
