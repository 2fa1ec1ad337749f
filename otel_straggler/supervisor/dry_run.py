"""What a day of the journal would have led to under another policy. Nothing is done, and a
supervisor that uses the journal is not disturbed: a copy is read."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from otel_straggler.collector.access.roles import Principal
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.decide import longest_window_s, simulate_fleet
from otel_straggler.supervisor.fleet import Decision, Fleet
from otel_straggler.supervisor.policy import TAKES_OUT, Policy
from otel_straggler.supervisor.recent import Recent
from otel_straggler.supervisor.store import Entry, Store

DAY_S: Final = 86_400.0
_TRIES: Final = 3
"""A copy that was made in the middle of a write may be damaged."""
_SHOWN: Final = 50


def dry_run(path: str, policy: Policy, now_unix_s: float) -> list[str]:
    """What the journal's last day would have led to; lines for people.

    Raises:
        InputError: there is no journal.
        ConfigError, UnavailableError: it is damaged, or cannot be read.
    """
    since_s = now_unix_s - DAY_S
    with tempfile.TemporaryDirectory() as folder:
        store = _copied(Path(path), Path(folder))
        try:
            entries = store.since(since_s)
            before = store.fleet(since_s - longest_window_s(policy))
        finally:
            store.close()
    fleet = _rewound(before, entries, since_s)
    senders = {entry.cause.id: _sender(entry.decision) for entry in entries}
    causes = [(entry.decision.at_unix_s, entry.cause) for entry in entries]
    decisions = simulate_fleet(fleet, causes, policy, sender=lambda cause: senders[cause.id])
    return list(_lines(entries, decisions.decisions))


def _copied(path: Path, folder: Path) -> Store:
    for tries_left in reversed(range(_TRIES)):
        copy = folder / str(tries_left)
        try:
            for suffix in ("", "-wal"):
                if suffix == "" or Path(f"{path}{suffix}").exists():
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        except OSError as error:
            expected = "the journal of a supervisor, which can be read"
            raise InputError.of("state.path", str(path), expected, f"{error}.") from None
        try:
            return Store(copy)
        except ConfigError as error:
            if not tries_left:
                raise ConfigError(str(error).replace(str(copy), str(path))) from None
    raise AssertionError


def _rewound(fleet: Fleet, entries: Sequence[Entry], since_s: float) -> Fleet:
    """The fleet before the actions of the entries."""
    for entry in reversed(entries):
        decision = entry.decision
        if not decision.acts or decision.is_refused or entry.status == "expired":
            continue
        if decision.action in TAKES_OUT and decision.host in fleet.hosts:
            host = fleet.hosts[decision.host]
            fleet = fleet.with_hosts([replace(host, state=decision.state_before)])
        if decision.replacement in fleet.hosts:
            host = fleet.hosts[decision.replacement]
            fleet = fleet.with_hosts([replace(host, state="spare", run_id="")])
    earlier = Recent.of(each for each in fleet.decisions if each.at_unix_s < since_s)
    return replace(fleet, decisions=earlier, is_stopped=False)


def _sender(decision: Decision) -> Principal:
    return Principal(name=decision.by, role="ingest", runs=decision.tenant)


def _lines(entries: Sequence[Entry], decisions: Sequence[Decision]) -> Iterator[str]:
    was = Counter(_word(entry.decision) for entry in entries)
    would_be = Counter(map(_word, decisions))
    yield f"{len(entries)} causes of the last 24 h are in the journal. Of them, then and now:"
    for word in sorted(was | would_be):
        yield f"  {word:<20}{was[word]:>8}{would_be[word]:>8}"
    pairs = zip(entries, decisions, strict=True)
    changed = [pair for pair in pairs if _word(pair[0].decision) != _word(pair[1])]
    for entry, decision in changed[:_SHOWN]:
        yield f"{_about(entry.cause)}: {_said(entry.decision)}; now {_said(decision)}"
    if len(changed) > _SHOWN:
        yield f"and {len(changed) - _SHOWN} more that differ"
    yield (
        "Alerts that no rule was about are not in the journal, so rules about them are not tried. "
        "Each action is taken to succeed at once."
    )


def _word(decision: Decision) -> str:
    return decision.action or decision.reason


def _about(cause: Cause) -> str:
    return f"{cause.name} of {cause.host or cause.run_id or 'the fleet'}"


def _said(decision: Decision) -> str:
    rule = f" ({decision.rule})" if decision.rule else ""
    return f"{decision.action}{rule}" if decision.acts else f"nothing: {decision.reason}{rule}"
