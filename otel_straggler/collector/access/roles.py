"""Roles, and who asks: from where, under which name, with which role."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Role = Literal["public", "read", "operate", "ingest", "admin"]
"""``public`` is for what anybody may have: the page's own files, health, and the login."""

_COVERS: Final[Mapping[Role, frozenset[Role]]] = {
    "public": frozenset({"public"}),
    "read": frozenset({"public", "read"}),
    "operate": frozenset({"public", "read", "operate"}),
    "ingest": frozenset({"public", "ingest"}),
    "admin": frozenset({"public", "read", "operate", "ingest", "admin"}),
}
ROLES: Final = ("ingest", "read", "operate", "admin")
"""Those that can be granted."""

READ: Final[Mapping[str, Role]] = {"GET": "read", "HEAD": "read"}
PUBLIC: Final[Mapping[str, Role]] = {"GET": "public", "HEAD": "public"}
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection.

    Attributes:
        address: host and port, for logs.
        names: of its certificate, if an authority that we trust signed it.
        uid: of its process, on a Unix socket; None otherwise.
    """

    address: str = ""
    names: tuple[str, ...] = ()
    uid: int | None = None


UNKNOWN: Final = Peer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks.

    Attributes:
        runs: prefix of the names of runs that it may send or see; empty = all.
        max_runs, max_ranks: at a time; 0 = any number.
        spans_per_s, bytes_per_s: on average, with ten seconds' worth at once; 0 = any number.
        max_series: of all its runs together, for Prometheus; 0 = its part of the budget.
        hosts: that it may name to a supervisor, or where one ends in ``*`` all that begin so;
            empty = all.
        max_hosts: that its reports may add to a supervisor's fleet; 0 = the supervisor's limit.
        actions_per_hour: that may follow from what it sends to a supervisor; 0 = the supervisor's
            limit.
        ends_at_s: from then on it is nobody; seconds since 1970.
    """

    name: str
    role: Role
    runs: str = ""
    max_runs: int = 0
    max_ranks: int = 0
    spans_per_s: float = 0.0
    bytes_per_s: float = 0.0
    max_series: int = 0
    hosts: tuple[str, ...] = ()
    max_hosts: int = 0
    actions_per_hour: int = 0
    ends_at_s: float = math.inf

    def may(self, role: Role) -> bool:
        """
        >>> Principal(name="alice", role="operate").may("read")
        True
        """
        return role in _COVERS[self.role]

    def covers(self, run_id: str) -> bool:
        """Whether it may send, or see, a run."""
        return run_id.startswith(self.runs)

    def names(self, host: str) -> bool:
        """Whether it may name a host.

        >>> one = Principal(name="a", role="ingest", hosts=("gpu-1", "a-*"))
        >>> [one.names(host) for host in ("gpu-1", "gpu-12", "a-7", "b-7", "a-7,b-7")]
        [True, False, True, False, False]
        """
        return not self.hosts or any(
            _HOST.fullmatch(host) and host.startswith(each[:-1])
            if each.endswith("*")
            else host == each
            for each in self.hosts
        )


ANYBODY: Final = Principal(name="anybody", role="admin")
"""Everybody, where there are no grants."""
NOBODY: Final = Principal(name="", role="public")
"""Who has shown no valid credential."""
