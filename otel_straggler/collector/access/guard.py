"""Checks of every request: whose it is, whether they may, and whether a web page sent it.

A browser on the same machine can be made to send requests here: under a foreign name (DNS
rebinding), so the Host header must be a name of this server; and from a foreign page, so changes
must not carry the Origin of another one, and must come in a content type that a form cannot send.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from otel_straggler.collector.access.audit import Audit
from otel_straggler.collector.access.grants import GrantBook, is_token
from otel_straggler.collector.access.roles import ANYBODY, NOBODY, Peer, Principal, Role
from otel_straggler.collector.access.settings import AuthSettings

if TYPE_CHECKING:
    from otel_straggler.collector.ingest.http_messages import Head

_log = logging.getLogger(__name__)

COOKIE: Final = "otel_straggler_token"
_SAFE: Final = frozenset({"GET", "HEAD"})
_MAX_FOREIGN: Final = 10
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="otel-straggler"'}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Guard:
    """Decides by the head of a request alone. Thread-safe.

    Args:
        allowed_hosts: further names of this server.

    Raises:
        ConfigError: a file of grants is wrong.
    """

    def __init__(
        self,
        settings: AuthSettings | None = None,
        allowed_hosts: tuple[str, ...] = (),
        audit: Audit | None = None,
    ) -> None:
        paths = settings.grant_files if settings is not None else ()
        self._book = GrantBook(paths) if paths else None
        self._configured = {host.lower() for host in allowed_hosts}
        self._names = {"localhost", socket.gethostname().lower(), *self._configured}
        self._foreign: set[str] = set()
        self.audit = audit or Audit()

    @property
    def is_on(self) -> bool:
        return self._book is not None

    def principals(self) -> tuple[Principal, ...]:
        """All that have a grant."""
        return () if self._book is None else self._book.principals()

    # --- who asks --------------------------------------------------------------------------------

    def identify(self, peer: Peer, authorization: str = "", cookie: str = "") -> Principal:
        """Who asks, by token, by cookie, by certificate, or by the user of a process: root and
        the user of this one may do everything."""
        if self._book is None:
            return ANYBODY
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self._of_token(token.strip()) or NOBODY
        if cookie and (known := self._of_token(_token_in(cookie))):
            return known
        if peer.uid in (0, os.geteuid()):
            return Principal(name=f"uid:{peer.uid}", role="admin")
        return self._book.of_peer(peer) or NOBODY

    def admit(self, head: Head, role: Role, *, with_cookie: bool = False) -> Refusal | None:
        """Record who sent a request; why it is refused, or None."""
        headers = head.headers
        cookie = headers.get("cookie", "") if with_cookie else ""
        authorization = headers.get("authorization", "")
        head.principal = self.identify(head.peer, authorization, cookie)
        what = f"{head.method} {head.path}"
        return self.refusal_of(head.principal, role, head.peer, what, authorization or cookie)

    def refusal_of(
        self, who: Principal, role: Role, peer: Peer, what: str, shown: str = ""
    ) -> Refusal | None:
        """Why somebody may not do something; None if they may. ``shown``: a credential that they
        have, known or not."""
        if who.may(role):
            return None
        if who is NOBODY:
            has_any = bool(shown or peer.names or peer.uid is not None)
            reason = "unknown_credential" if has_any else "no_credential"
            self.audit.refused(who, peer, what, 401, reason)
            message = f"a credential with the role {role} is needed; docs/operate/security.md"
            return Refusal(401, message, _CHALLENGE)
        self.audit.refused(who, peer, what, 403, "role")
        return Refusal(403, f"{who.name} has the role {who.role}; {role} is needed")

    def record_refusal(self, head: Head, status: int, reason: str, run_id: str = "") -> None:
        """Record what is refused to a sender that :meth:`admit` has let in."""
        what = f"{head.method} {head.path}"
        self.audit.refused(head.principal, head.peer, what, status, reason, run_id)

    def _of_token(self, token: str) -> Principal | None:
        return self._book.of_token(token) if self._book is not None and is_token(token) else None

    # --- browsers --------------------------------------------------------------------------------

    def refuse_browser(self, head: Head, *, checks_host: bool) -> Refusal | None:
        """Why a request may come from a foreign web page; None if it cannot.

        Args:
            checks_host: whether the Host must be a name of this server.
        """
        host = head.headers.get("host", "")
        if checks_host and not self.is_own_name(host):
            self._log_foreign(host, head.path)
            text = "this Host is not served; name it in metrics.allowed_hosts if it is yours"
            return self._refused_browser(head, "host", text)
        if head.method in _SAFE:
            return None
        origin = head.headers.get("origin")
        is_foreign = origin is not None and not self._is_own_origin(origin, host)
        if is_foreign or head.headers.get("sec-fetch-site") == "cross-site":
            text = "a page of another origin may not send this; metrics.allowed_hosts has own names"
            return self._refused_browser(head, "origin", text)
        return None

    def _refused_browser(self, head: Head, reason: str, text: str) -> Refusal:
        headers = head.headers
        head.principal = self.identify(
            head.peer, headers.get("authorization", ""), headers.get("cookie", "")
        )
        self.record_refusal(head, 403, reason)
        return Refusal(403, text)

    def is_own_name(self, host: str) -> bool:
        """Whether a Host header names this server. An address cannot be rebound; no Host at all is
        HTTP/1.0, which no browser speaks."""
        name = _name_in(host)
        if not name or name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_own_origin(self, origin: str, host: str) -> bool:
        """Whether it is the page of the same host and port, or of a configured name that a proxy
        has. A foreign page may be at an address, so addresses are not enough here."""
        authority = urlsplit(origin).netloc.lower()
        is_same = bool(authority) and authority == host.strip().lower()
        is_ours = is_same and self.is_own_name(host)
        return is_ours or _name_in(authority) in self._configured

    def _log_foreign(self, host: str, path: str) -> None:
        """Once per name: 403 explains nothing to a scraper."""
        if host in self._foreign or len(self._foreign) >= _MAX_FOREIGN:
            return
        self._foreign.add(host)
        _log.warning(
            "refused %.40r of Host %.80r; if that is a name of this collector, list it in "
            "metrics.allowed_hosts", path, host,
        )  # fmt: skip


def _name_in(host: str) -> str:
    """Without the port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0] if name.count(":") == 1 else name


def _token_in(cookie: str) -> str:
    """The token of a Cookie header; empty if it has none."""
    try:
        morsel = SimpleCookie(cookie).get(COOKIE)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value
