"""What the engine works with, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.executors import Executor
from otel_straggler.supervisor.fleet import Decision, Fleet, Host
from otel_straggler.supervisor.policy import Policy
from otel_straggler.supervisor.store import Entry, StepRow, Store

_SHOWN: Final = (
    "cause_id", "at_unix_s", "action", "reason", "rule", "host", "replacement", "run_id", "device",
    "code",
)  # fmt: skip
"""Fields of a decision in a status."""


class Observer(Protocol):
    """Who is informed of what happens: counters, spans, audit."""

    def decided(self, cause: Cause, decision: Decision) -> None:
        """A decision to act was written, before anything is done."""

    def ignored(self, reason: str) -> None:
        """Nothing follows from a cause."""

    def ended(self, entry: Entry, steps: Sequence[StepRow]) -> None:
        """A decision has ended; after a crash perhaps for a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """What the engine works with.

    Attributes:
        wall_s: seconds since 1970.
        hosts: of the configuration, added where the journal does not know them.
    """

    store: Store
    policy: Policy
    executor: Executor
    observer: Observer
    wall_s: Callable[[], float]
    hosts: tuple[Host, ...] = ()


def status_json(store: Store, fleet: Fleet, executor: str, limit: int) -> dict[str, Any]:
    """Who stopped it, the hosts by name, since when it is not known which were cordoned, and the
    newest decisions; JSON's types only."""
    newest = (e for e in store.newest(10 * limit) if e.decision.reason != "no_rule")
    return {
        "stopped": store.meta("stopped"),
        "executor": executor,
        "hosts": [
            {**asdict(host), "state": fleet.state_of(name), "is_known": fleet.knows(name)}
            for name, host in sorted(fleet.hosts.items())
        ],
        "unknown": store.meta("unknown"),
        "decisions": list(map(_shown, newest))[:limit],
    }


def _shown(entry: Entry) -> dict[str, Any]:
    shown = {key: getattr(entry.decision, key) for key in _SHOWN}
    return {**shown, "status": entry.status, "text": entry.text, "cause": entry.cause.name}
