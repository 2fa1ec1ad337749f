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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.regular_files import UnsafeFileError, create_folder, create_regular, file_of
from otel_straggler.supervisor.causes import Cause, cause_json, cause_of_json
from otel_straggler.supervisor.fleet import (
    HOST_STATES,
    Decision,
    Fleet,
    Host,
    decision_json,
    decision_of_json,
)
from otel_straggler.supervisor.recent import Recent

Status = Literal["ignored", "decided", "started", "done", "failed", "unknown", "expired"]
"""Of a decision. ``unknown``: a step may have been done when the supervisor was killed, and nobody
can say."""
ENDED: Final[frozenset[Status]] = frozenset({"ignored", "done", "failed", "unknown", "expired"})

_APPLICATION_ID: Final = 0x6F747376  # "otsv"
_SCHEMA_VERSION: Final = 2
_MAX_IGNORED: Final = 100_000  # of what no policy limits; what failed is not tried again
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
    name TEXT PRIMARY KEY, state TEXT NOT NULL, since_unix_s REAL NOT NULL, run_id TEXT NOT NULL,
    added_by TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_FROM_1: Final = "ALTER TABLE hosts ADD COLUMN added_by TEXT NOT NULL DEFAULT ''"


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

    Attributes:
        is_new: there was none, or an empty file.

    Raises:
        UnavailableError: another supervisor uses the file, or it cannot be opened.
        ConfigError: it belongs to another program or version, or is damaged.
    """

    is_new = False

    def __init__(self, path: Path) -> None:
        self._reported: list[str] = []
        try:
            create_folder(path.parent)
            create_regular(path)
        except (OSError, UnsafeFileError) as error:
            expected = "a file that this process can write"
            raise UnavailableError.of("state.path", str(path), expected, f"{error}.") from None
        self._path, self._file = path, file_of(path)
        self._connection = sqlite3.connect(path, 0.0, isolation_level=None, check_same_thread=False)
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
                self.is_new = not self._number("SELECT count(*) FROM sqlite_master")
                if self.is_new:
                    self._create()
                elif self._version() == (_APPLICATION_ID, 1):
                    self._connection.execute(_FROM_1)
                    self._connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            version = self._version()
            if version == (_APPLICATION_ID, _SCHEMA_VERSION):
                self._check()
        except sqlite3.OperationalError as error:
            if "UTF-8" in str(error) or "no such" in str(error):
                raise _damaged(path, error) from None
            expected = "a file that no other supervisor uses"
            remedy = f"Stop that one, or choose another path ({error})."
            raise UnavailableError.of("state.path", str(path), expected, remedy) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise _damaged(path, error) from None
        if version != (_APPLICATION_ID, _SCHEMA_VERSION):
            expected = f"the journal of a supervisor, version {_SCHEMA_VERSION}, or no file"
            raise ConfigError.of("state.path", str(path), expected, "Choose another path.")

    def _version(self) -> tuple[int, int]:
        return self._number("PRAGMA application_id"), self._number("PRAGMA user_version")

    def _check(self) -> None:
        """Raise sqlite3.DatabaseError where a part of the file, or what a start needs of it, is
        not what was written."""
        if (found := self._all("PRAGMA quick_check(1)")) != [("ok",)]:
            raise sqlite3.DatabaseError(f"quick_check: {found[0][0]}")
        self.fleet(0.0)
        for entry in (*self.unfinished(), *self.unreported()):
            self.steps(entry.cause.id)
        with _undamaged("meta"):
            seen, unknown = self.meta("seen"), self.meta("unknown")
            _ = seen and float(seen["at_unix_s"]), unknown and unknown["why"] + ""

    def _create(self) -> None:
        for statement in filter(str.strip, _TABLES.split(";")):
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; one within another is a part of it."""
        if self._connection.in_transaction:
            yield
        else:
            yield from self._begun()

    def _begun(self) -> Iterator[None]:
        if file_of(self._path) != self._file:
            raise sqlite3.OperationalError(
                f"{self._path} is another file now, or none: put it back"
            )
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            reported = [(cause_id,) for cause_id in self._reported]
            if reported:
                self._connection.executemany(_REPORTED, reported)
            yield
            self._connection.execute("COMMIT")
            del self._reported[: len(reported)]
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.unreported()
        self._connection.close()

    def fleet(self, since_unix_s: float) -> Fleet:
        """The fleet with its decisions since then."""
        rows = self._all("SELECT name, state, since_unix_s, run_id, added_by FROM hosts")
        decided = self._all(
            "SELECT decision FROM decisions WHERE at_unix_s >= ? AND status NOT IN "
            "('ignored', 'expired') ORDER BY rowid",
            since_unix_s,
        )
        with _undamaged("fleet"):
            return Fleet(
                hosts={row[0]: _host(row) for row in rows},
                decisions=Recent.of(decision_of_json(json.loads(text)) for (text,) in decided),
                is_stopped=bool(self.meta("stopped")),
            )

    def put_hosts(self, hosts: Iterable[Host]) -> None:
        rows = [(h.name, h.state, h.since_unix_s, h.run_id, h.added_by) for h in hosts]
        self._connection.executemany("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?, ?)", rows)

    def drop_host(self, name: str) -> None:
        self._connection.execute("DELETE FROM hosts WHERE name = ?", (name,))

    def meta(self, key: str) -> dict[str, Any] | None:
        """A fact, such as who stopped it, when and why (``stopped``); None if there is none."""
        rows = self._all("SELECT value FROM meta WHERE key = ?", key)
        with _undamaged(key):
            return dict(json.loads(rows[0][0])) if rows else None

    def set_meta(self, key: str, value: dict[str, Any] | None) -> None:
        """Set a fact, or remove it."""
        if value is None:
            self._connection.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            row = (key, json.dumps(value))
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

    def waiting(self) -> int:
        """How many :meth:`unfinished` has."""
        return self._number("SELECT count(*) FROM decisions WHERE status IN ('decided', 'started')")

    def unreported(self) -> tuple[Entry, ...]:
        """Decisions that have ended without their span and audit line."""
        with self.transaction():
            pass  # what has been reported is written
        where = "is_reported = 0 AND status NOT IN ('decided', 'started')"
        return tuple(map(_entry, self._all(f"{_ENTRY} WHERE {where} ORDER BY rowid")))

    def set_reported(self, cause_id: str) -> None:
        """Written with the next transaction, or at the end: it may be reported twice."""
        self._reported.append(cause_id)

    def newest(self, limit: int) -> tuple[Entry, ...]:
        """The newest decisions."""
        return tuple(map(_entry, self._all(f"{_ENTRY} ORDER BY rowid DESC LIMIT ?", limit)))

    def since(self, unix_s: float) -> tuple[Entry, ...]:
        """What was decided since then, oldest first."""
        return tuple(
            map(_entry, self._all(f"{_ENTRY} WHERE at_unix_s >= ? ORDER BY rowid", unix_s))
        )

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
            [(cause.id, n, json.dumps(asdict(step))) for n, step in enumerate(steps)],
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
        with _undamaged(cause_id):
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
        """Write that a step begins; of many at once within one transaction."""
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
            ended = (
                "DELETE FROM decisions WHERE status NOT IN ('decided', 'started') AND at_unix_s < ?"
            )
            self._connection.execute(ended, (than_unix_s,))
            self._connection.execute(_DROP_FLOODS, (_MAX_IGNORED,))
            self._connection.execute(_DROP_STEPS)

    def _all(self, question: str, *values: Any) -> list[Any]:
        return self._connection.execute(question, values).fetchall()

    def _number(self, question: str) -> int:
        return int(self._connection.execute(question).fetchone()[0])


_DROP_FLOODS: Final = """
WITH floods AS (SELECT rowid AS n FROM decisions WHERE status = 'ignored'
    OR status NOT IN ('decided', 'started') AND instr(decision, '"action": "notify"')
    OR status = 'failed' AND NOT EXISTS (SELECT 1 FROM steps
        WHERE steps.cause_id = decisions.cause_id AND started_unix_s NOT NULL))
DELETE FROM decisions WHERE rowid IN (SELECT n FROM floods ORDER BY n DESC LIMIT -1 OFFSET ?)"""
_DROP_STEPS: Final = "DELETE FROM steps WHERE cause_id NOT IN (SELECT cause_id FROM decisions)"
_REPORTED: Final = "UPDATE decisions SET is_reported = 1 WHERE cause_id = ?"
_ENTRY: Final = "SELECT cause, decision, status, text FROM decisions"


def _entry(row: tuple[Any, ...]) -> Entry:
    cause, decision, status, text = row
    with _undamaged("decision"):
        return Entry(
            cause=cause_of_json(json.loads(cause)),
            decision=decision_of_json(json.loads(decision)),
            status=cast("Status", status),
            text=text,
        )


def _host(row: tuple[Any, ...]) -> Host:
    name, state, since_s, run_id, added_by = row
    if state not in HOST_STATES:
        raise ValueError(state)
    return Host(
        name=name, state=state, since_unix_s=float(since_s), run_id=run_id, added_by=added_by
    )


def _damaged(path: Path, error: Exception) -> ConfigError:
    expected = "a SQLite file, the undamaged journal of a supervisor"
    remedy = "Choose another path, or move it away: a scheduler is asked for cordoned hosts then"
    return ConfigError.of("state.path", str(path), expected, f"{remedy} ({error}).")


@contextlib.contextmanager
def _undamaged(what: str) -> Iterator[None]:
    """A row that is not what was written is an error of the journal."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        msg = f"the row of {what[:100]!r} is damaged: {type(error).__name__}"
        raise sqlite3.DatabaseError(msg) from None
