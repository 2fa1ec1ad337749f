"""The journal: a SQLite file that is written before anything is done.

The decision about a cause is written first; each step of its action is written as started before
it begins, and as done once it has ended. So after a crash the journal says of each step whether it
had not begun, may have been in progress, or was done.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.regular_files import UnsafeFileError, create_folder, create_regular
from otel_straggler.supervisor.causes import Cause, cause_json, cause_of_json
from otel_straggler.supervisor.fleet import Decision, Fleet, Host, decision_json

Status = Literal["ignored", "decided", "started", "done", "failed", "unknown", "expired"]
"""Of a decision. ``unknown``: a step may have been done when the supervisor was killed, and nobody
can say."""
ENDED: Final[frozenset[Status]] = frozenset({"ignored", "done", "failed", "unknown", "expired"})

_APPLICATION_ID: Final = 0x6F747376
"""``PRAGMA application_id``: "otsv"."""
_SCHEMA_VERSION: Final = 1
_TABLES: Final = """
CREATE TABLE decisions (
    cause_id TEXT PRIMARY KEY, at_unix_s REAL NOT NULL, status TEXT NOT NULL,
    cause TEXT NOT NULL, decision TEXT NOT NULL, text TEXT NOT NULL DEFAULT '',
    is_reported INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX decisions_by_time ON decisions (at_unix_s);
CREATE INDEX decisions_by_status ON decisions (status);
CREATE TABLE steps (
    cause_id TEXT NOT NULL, number INTEGER NOT NULL, status TEXT NOT NULL,
    step TEXT NOT NULL, before TEXT NOT NULL DEFAULT '{}', text TEXT NOT NULL DEFAULT '',
    started_unix_s REAL, ended_unix_s REAL, PRIMARY KEY (cause_id, number)
) WITHOUT ROWID;
CREATE TABLE hosts (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, since_unix_s REAL NOT NULL, run_id TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of an executor.

    Attributes:
        verb: what it does, as the executor calls it.
        target: host, job or pod.
        arguments: anything else that it needs; JSON's types.
    """

    verb: str
    target: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step in the journal; ``before`` is what the executor observed before it began."""

    number: int
    status: Literal["pending", "started", "done", "failed", "unknown"]
    step: Step
    before: dict[str, Any]
    text: str
    started_unix_s: float | None
    ended_unix_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A decision in the journal."""

    cause: Cause
    decision: Decision
    status: Status
    text: str


class Store:
    """The journal. For one thread at a time; every method may raise sqlite3.Error and has then
    written nothing. What is written is on the disk.

    Raises:
        UnavailableError: another supervisor uses the file, or it cannot be opened.
        ConfigError: it belongs to another program or version.
    """

    def __init__(self, path: Path) -> None:
        try:
            create_folder(path.parent)
            create_regular(path)
        except (OSError, UnsafeFileError) as error:
            expected = "a file that this process can write"
            raise UnavailableError.of("state.path", str(path), expected, f"{error}.") from None
        self._connection = sqlite3.connect(
            path, timeout=0.0, isolation_level=None, check_same_thread=False
        )
        try:
            self._open(path)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, path: Path) -> None:
        try:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL").fetchall()
            self._connection.execute("PRAGMA synchronous = FULL")
            with self.transaction():
                if not self._number("SELECT count(*) FROM sqlite_master"):
                    self._create()
            known = self._number("PRAGMA application_id"), self._number("PRAGMA user_version")
        except sqlite3.OperationalError as error:
            expected = "a file that no other supervisor uses"
            remedy = f"Stop that one, or choose another path ({error})."
            raise UnavailableError.of("state.path", str(path), expected, remedy) from None
        except sqlite3.DatabaseError as error:
            remedy = f"Choose another path, or move it away ({error})."
            raise ConfigError.of("state.path", str(path), "a SQLite file", remedy) from None
        if known != (_APPLICATION_ID, _SCHEMA_VERSION):
            expected = f"the journal of a supervisor, version {_SCHEMA_VERSION}, or no file"
            raise ConfigError.of("state.path", str(path), expected, "Choose another path.")

    def _create(self) -> None:
        for statement in filter(str.strip, _TABLES.split(";")):
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()

    # --- the fleet -------------------------------------------------------------------------------

    def fleet(self, since_unix_s: float) -> Fleet:
        """The fleet with its decisions since then."""
        rows = self._all("SELECT name, state, since_unix_s, run_id FROM hosts")
        hosts = {r[0]: Host(name=r[0], state=r[1], since_unix_s=r[2], run_id=r[3]) for r in rows}
        decided = self._all(
            "SELECT decision FROM decisions WHERE at_unix_s >= ? AND status NOT IN "
            "('ignored', 'expired') ORDER BY rowid",
            since_unix_s,
        )
        with _undamaged():
            decisions = tuple(Decision(**json.loads(text)) for (text,) in decided)
        return Fleet(hosts=hosts, decisions=decisions, is_stopped=bool(self.stopped()))

    def put_hosts(self, hosts: Iterable[Host]) -> None:
        rows = [(h.name, h.state, h.since_unix_s, h.run_id) for h in hosts]
        self._connection.executemany("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?)", rows)

    def stopped(self) -> dict[str, Any] | None:
        """Who stopped it, when and why; None if it runs."""
        rows = self._all("SELECT value FROM meta WHERE key = 'stopped'")
        with _undamaged():
            return json.loads(rows[0][0]) if rows else None

    def set_stopped(self, stopped: dict[str, Any] | None) -> None:
        if stopped is None:
            self._connection.execute("DELETE FROM meta WHERE key = 'stopped'")
        else:
            row = ("stopped", json.dumps(stopped))
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)

    # --- decisions -------------------------------------------------------------------------------

    def entry(self, cause_id: str) -> Entry | None:
        """What was decided about a cause."""
        rows = self._all(f"{_ENTRY} WHERE cause_id = ?", cause_id)
        return _entry(rows[0]) if rows else None

    def unfinished(self) -> tuple[Entry, ...]:
        """Decisions whose action has not ended, oldest first."""
        rows = self._all(f"{_ENTRY} WHERE status IN ('decided', 'started') ORDER BY rowid")
        return tuple(map(_entry, rows))

    def unreported(self) -> tuple[Entry, ...]:
        """Decisions that have ended without their span and audit line."""
        where = "is_reported = 0 AND status NOT IN ('decided', 'started')"
        return tuple(map(_entry, self._all(f"{_ENTRY} WHERE {where} ORDER BY rowid")))

    def set_reported(self, cause_id: str) -> None:
        self._connection.execute(
            "UPDATE decisions SET is_reported = 1 WHERE cause_id = ?", (cause_id,)
        )

    def newest(self, limit: int) -> tuple[Entry, ...]:
        """The newest decisions."""
        return tuple(map(_entry, self._all(f"{_ENTRY} ORDER BY rowid DESC LIMIT ?", limit)))

    def put(self, cause: Cause, decision: Decision, steps: Sequence[Step]) -> None:
        """Write a decision; one that ignored the same cause is replaced."""
        status: Status = "decided" if decision.acts else "ignored"
        encoded = json.dumps(cause_json(cause)), json.dumps(decision_json(decision))
        self._connection.execute(
            "INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, '', 0)",
            (cause.id, decision.at_unix_s, status, *encoded),
        )
        self._connection.executemany(
            "INSERT INTO steps (cause_id, number, status, step) VALUES (?, ?, 'pending', ?)",
            [(cause.id, n, json.dumps(_step_json(step))) for n, step in enumerate(steps)],
        )

    def set_status(self, cause_id: str, status: Status, text: str = "") -> None:
        self._connection.execute(
            "UPDATE decisions SET status = ?, text = ? WHERE cause_id = ?", (status, text, cause_id)
        )

    def steps(self, cause_id: str) -> tuple[StepRow, ...]:
        rows = self._all(
            "SELECT number, status, step, before, text, started_unix_s, ended_unix_s FROM steps "
            "WHERE cause_id = ? ORDER BY number",
            cause_id,
        )
        with _undamaged():
            return tuple(
                StepRow(
                    number=n,
                    status=cast("Any", status),
                    step=Step(**json.loads(step)),
                    before=json.loads(before),
                    text=text,
                    started_unix_s=started_unix_s,
                    ended_unix_s=ended_unix_s,
                )
                for n, status, step, before, text, started_unix_s, ended_unix_s in rows
            )

    def start_step(
        self, cause_id: str, number: int, before: dict[str, Any], at_unix_s: float
    ) -> None:
        with self.transaction():
            self._connection.execute(
                "UPDATE steps SET status = 'started', before = ?, started_unix_s = ? "
                "WHERE cause_id = ? AND number = ?",
                (json.dumps(before), at_unix_s, cause_id, number),
            )
            self.set_status(cause_id, "started")

    def end_step(
        self, cause_id: str, number: int, status: str, text: str, at_unix_s: float
    ) -> None:
        self._connection.execute(
            "UPDATE steps SET status = ?, text = ?, ended_unix_s = ? "
            "WHERE cause_id = ? AND number = ?",
            (status, text, at_unix_s, cause_id, number),
        )

    def drop_older(self, than_unix_s: float) -> None:
        """Drop what ended before. Its causes are older than the policy acts upon."""
        with self.transaction():
            self._connection.execute(
                "DELETE FROM decisions WHERE at_unix_s < ? AND status NOT IN "
                "('decided', 'started')",
                (than_unix_s,),
            )
            self._connection.execute(
                "DELETE FROM steps WHERE cause_id NOT IN (SELECT cause_id FROM decisions)"
            )

    def _all(self, question: str, *values: Any) -> list[Any]:
        return self._connection.execute(question, values).fetchall()

    def _number(self, question: str) -> int:
        return int(self._connection.execute(question).fetchone()[0])


_ENTRY: Final = "SELECT cause, decision, status, text FROM decisions"


def _entry(row: tuple[Any, ...]) -> Entry:
    cause, decision, status, text = row
    with _undamaged():
        return Entry(
            cause=cause_of_json(json.loads(cause)),
            decision=Decision(**json.loads(decision)),
            status=cast("Status", status),
            text=text,
        )


@contextlib.contextmanager
def _undamaged() -> Iterator[None]:
    """A row that is not what was written is an error of the journal."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise sqlite3.DatabaseError(f"a row is damaged: {error!s:.200}") from None


def _step_json(step: Step) -> dict[str, Any]:
    return {"verb": step.verb, "target": step.target, "arguments": step.arguments}
