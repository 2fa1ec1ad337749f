"""Files of grants: who has which role, by which credential. They are read again when they change.

# role   name        credential                          limits
ingest   team-a      sha256:8f14e45f...                  runs=team-a/
read     prometheus  token:0f3c1d0f5c0e4bd18a3d9d5c
operate  alice       certificate:alice.example.org expires=2027-03-31
admin    local       uid:1000
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, cast

from otel_straggler.collector.access.expiry import Expiry
from otel_straggler.collector.access.quotas import LIMITS
from otel_straggler.collector.access.roles import ROLES, Peer, Principal, Role
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.regular_files import read_small_text
from otel_straggler.strict_json import whole_number

_log = logging.getLogger(__name__)

MIN_TOKEN: Final = 16
_MAX_BYTES: Final = 16 << 20
"""Letters; a shorter token can be guessed."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,500}=*")
"""What RFC 6750 lets a bearer token be; it can stand in a cookie, too."""
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_KINDS: Final = "token:TEXT, sha256:HEX, certificate:NAME or uid:NUMBER"
_RENEW: Final = "Give its line another day, or hand out a new credential."
_REMEDY: Final = "See docs/operate/security.md, 'Grants'."
_CHECK_S: Final = 1.0
_MAX_LIMIT: Final = 10**9
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Grant:
    """One line; ``credential`` is the token's SHA-256, the certificate's name, or the user's id."""

    principal: Principal
    kind: str
    credential: str


def is_token(token: str) -> bool:
    """Whether a text can be a bearer token."""
    return _TOKEN.fullmatch(token) is not None


def digest(token: str) -> str:
    """The SHA-256 of a token, as it may stand in a file of grants."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def read_grants(path: str) -> tuple[Grant, ...]:
    """The grants of a file.

    Raises:
        ConfigError: it cannot be read, or a line is wrong; a token is not in the message.
    """
    try:
        text = read_small_text(path, _MAX_BYTES, follow=True)
    except (OSError, InputError) as error:
        expected = "a readable file of grants"
        remedy = f"Check the path and its permissions ({error})."
        raise ConfigError.of("auth.grant_files", path, expected, remedy) from None
    lines = ((n, line.partition("#")[0].split()) for n, line in enumerate(text.splitlines(), 1))
    return tuple(_grant(words, f"{path}:{number}") for number, words in lines if words)


def _grant(words: Sequence[str], where: str) -> Grant:
    if len(words) < 3:
        expected = f"ROLE NAME CREDENTIAL, where a credential is {_KINDS}"
        raise ConfigError.of(where, f"{len(words)} words", expected, _REMEDY)
    role, name, credential, *limits = words
    if role not in ROLES:
        raise ConfigError.of(f"{where}: role", _shown(role), f"one of {', '.join(ROLES)}", _REMEDY)
    kind, _, value = credential.partition(":")
    return Grant(
        Principal(name=name, role=cast("Role", role), **_limits(limits, role, where)),
        "sha256" if kind == "token" else kind,
        _credential(kind, value, where),
    )


def _credential(kind: str, value: str, where: str) -> str:
    if kind == "token":
        if len(value) < MIN_TOKEN or not is_token(value):
            expected = f"a token of at least {MIN_TOKEN} letters, digits or -._~+/"
            remedy = "Make one with: openssl rand -hex 32"
            raise ConfigError.of(f"{where}: token", "...", expected, remedy)
        return digest(value)
    if kind == "sha256" and _SHA256.fullmatch(value):
        return value.lower()
    if kind == "certificate" and value:
        return value
    if kind == "uid" and (uid := whole_number(value)) is not None:
        return str(uid)
    shown = kind if kind in ("sha256", "certificate", "uid") else "..."
    raise ConfigError.of(f"{where}: credential", shown, f"one of {_KINDS}", _REMEDY)


def _limits(limits: Iterable[str], role: str, where: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for limit in limits:
        key, _, value = limit.partition("=")
        number = whole_number(value)
        if key == "expires" and (ends_at_s := _end_of(value)) is not None:
            result["ends_at_s"] = ends_at_s
        elif key == "runs" and value and role in ("ingest", "read"):
            result[key] = value
        elif key in LIMITS and number and number <= _MAX_LIMIT and role == "ingest":
            result[key] = number
        else:
            numbers = ", ".join(f"{each}=N" for each in LIMITS)
            expected = (
                f"runs=PREFIX of an ingest or read grant, {numbers} of an ingest grant, "
                "expires=YEAR-MONTH-DAY of any"
            )
            raise ConfigError.of(f"{where}: limit", _shown(limit), expected, _REMEDY)
    return result


def _end_of(day: str) -> float | None:
    """The end of a day, UTC; None if it is none.

    >>> _end_of("1970-01-01"), _end_of("tomorrow")
    (86400.0, None)
    """
    try:
        at = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return at.timestamp() + _DAY_S


def _shown(word: str) -> str:
    """A word of a wrong line as an error has it: not if it may hold a token."""
    return word if all(len(part) < MIN_TOKEN for part in re.split("[:=]", word)) else "..."


class GrantBook:
    """The grants of all files. Thread-safe; a file is looked at once a second at most, and one that
    cannot be read, or is wrong, changes nothing but a line in the log.

    Raises:
        ConfigError: a file is wrong at the start.
    """

    def __init__(
        self,
        paths: Sequence[str],
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._paths = tuple(paths)
        self._now_s = monotonic_s
        self._wall_s = wall_s
        self._logged: set[str] = set()
        self._lock = threading.Lock()
        self._state = self._stat()
        self._checked_at_s = monotonic_s()
        self._grants = self._read()

    def of_token(self, token: str) -> Principal | None:
        """Whose token it is. Compares in constant time."""
        presented = digest(token)
        result = None
        for grant in self._current():
            if grant.kind == "sha256" and hmac.compare_digest(grant.credential, presented):
                result = result or grant.principal
        return self._unless_ended(result)

    def of_peer(self, peer: Peer) -> Principal | None:
        """Who it is by its certificate, or by the user of its process."""
        for grant in self._current():
            if grant.kind == "certificate" and grant.credential in peer.names:
                return self._unless_ended(grant.principal)
            if grant.kind == "uid" and grant.credential == str(peer.uid):
                return self._unless_ended(grant.principal)
        return None

    def principals(self) -> tuple[Principal, ...]:
        """All that have a grant."""
        return tuple(grant.principal for grant in self._current())

    def _unless_ended(self, who: Principal | None) -> Principal | None:
        """Nobody once the grant has ended, which is logged once."""
        if who is None or self._wall_s() < who.ends_at_s:
            return who
        if who.name not in self._logged:
            self._logged.add(who.name)
            ended = Expiry("grants", who.name, who.ends_at_s).text
            _log.warning("auth: %s; its requests are refused. %s", ended, _RENEW)
        return None

    def _current(self) -> tuple[Grant, ...]:
        now_s = self._now_s()
        if now_s - self._checked_at_s >= _CHECK_S and self._lock.acquire(blocking=False):
            try:
                self._checked_at_s = now_s
                self._refresh()
            finally:
                self._lock.release()
        return self._grants

    def _refresh(self) -> None:
        state = self._stat()
        if state == self._state:
            return
        self._state = state
        try:
            self._grants = self._read()
            _log.info("auth: %d grants read again", len(self._grants))
        except ConfigError as error:
            _log.error("auth: the grants of before stay in force: %s", error)

    def _read(self) -> tuple[Grant, ...]:
        return tuple(grant for path in self._paths for grant in read_grants(path))

    def _stat(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stat_of, self._paths))


def _stat_of(path: str) -> tuple[int, int, int] | None:
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
