"""A damaged journal is read, or it is one error of the journal; any other is a fault of ours."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_straggler.errors import StragglerError
from otel_straggler.supervisor.fleet import Decision, Host
from otel_straggler.supervisor.store import Step, Store

from ..damage import damaged
from .supervised import NOW_S, alert

ROWS = [("decisions", "cause"), ("decisions", "decision"), ("steps", "step"), ("steps", "before")]


def write(path: Path) -> None:
    """A journal with hosts, a decision whose action has begun, and one that is done."""
    store = Store(path)
    store.put_hosts([Host(name=f"n{i}", state="running", run_id="run") for i in range(3)])
    for number in range(2):
        host = f"n{number}"
        cause = alert(node=host, run_id="run")
        decision = Decision(cause_id=cause.id, at_unix_s=NOW_S, action="cordon", host=host)
        store.put(cause, decision, [Step(verb="cordon", target=host, arguments={"reason": "x"})])
        store.start_step(cause.id, 0, {"state": "running"}, NOW_S)
    store.end_step(cause.id, 0, "done", "cordoned", NOW_S + 1)
    store.set_status(cause.id, "done", "cordoned")
    store.close()


def problem(path: Path) -> str:
    """Of reading all that a start and the API read; empty if there is none."""
    try:
        store = Store(path)
    except StragglerError as error:
        return str(error)
    try:
        store.fleet(0.0)
        for entry in (*store.unfinished(), *store.unreported(), *store.newest(10)):
            store.steps(entry.cause.id)
    except sqlite3.Error as error:
        return str(error)
    finally:
        store.close()
    return ""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    write(path)
    assert problem(path) == ""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    connection.close()
    return path


def copied(journal: Path) -> Path:
    path = journal.with_name("damaged.db")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(journal, path)
    return path


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_row_is_read_or_an_error_of_the_journal(
    journal: Path, data: st.DataObject
) -> None:
    """`make fuzz` tries 20,000."""
    table, column = data.draw(st.sampled_from(ROWS))
    path = copied(journal)
    connection = sqlite3.connect(path)
    ((text,),) = connection.execute(f"SELECT {column} FROM {table} LIMIT 1")
    content = data.draw(damaged([text.encode()]))
    connection.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT)", (content,))
    connection.commit()
    connection.close()
    assert len(problem(path)) < 2_000


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_file_is_read_or_an_error_of_the_journal(
    journal: Path, data: st.DataObject
) -> None:
    path = copied(journal)
    path.write_bytes(data.draw(damaged([journal.read_bytes()])))
    assert len(problem(path)) < 2_000
