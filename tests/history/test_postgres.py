"""One PostgreSQL for the histories of several collectors: nothing twice, nothing lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history import postgres_history as module
from otel_straggler.collector.history.failures import PostgresError
from otel_straggler.collector.history.history import History
from otel_straggler.collector.history.postgres import PostgresTables
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.store import Summary
from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.secret import Secret

from ..servers.postgres import Postgres
from ..waiting import eventually

DAY_S = 86_400.0
MiB = 2**20


@pytest.fixture
def path(database: Postgres) -> str:
    return database.url


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.05)
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)


def lost(history: Any) -> dict[str, int]:
    return {reason: n for reason, n in history.counts().failures.items() if n}


def summary(step: int, received_at_s: float, run_id: str = "run") -> Summary:
    value = {"step": step, "received_at_s": received_at_s}
    return Summary(run_id=run_id, job="job", group="", make=lambda: value)


def first_steps(database: Postgres, run_id: str = "run") -> list[int | None]:
    with HistoryReader(database.url) as reader:
        return [window.first_step for window in reader.windows(run_id)]


def ranks_of_changes(database: Postgres, run_id: str = "run") -> list[int | None]:
    with HistoryReader(database.url) as reader:
        return [verdict.rank for verdict in reader.changes(run_id)]


def test_a_run_that_moves_has_the_windows_and_verdicts_of_both_shards_once(
    begin: Any, kit: Any, database: Postgres
) -> None:
    """It belongs to the shard that heard from it last, also where the other one writes later; each
    shard restores its own states."""
    old, new = begin(collector="a"), begin(collector="b")
    old.put(windows=[kit.window(0)], changes=[kit.verdict(0)], states={"references": "of a"})
    old.put(summaries=[summary(1, 100.0)])
    assert old.flush()
    new.put(windows=[kit.window(1)], changes=[kit.verdict(1)], states={"references": "of b"})
    new.put(summaries=[summary(2, 110.0)])
    assert new.flush()
    old.put(windows=[], summaries=[summary(1, 101.0)])
    old.close()
    new.close()
    assert first_steps(database) == [0, 10]
    assert ranks_of_changes(database) == [0, 1]
    with HistoryReader(database.url) as reader:
        (run,) = reader.runs()
        assert (run.windows, run.changes, run.collector) == (2, 2, "b")
        assert reader.summary("run", "")["step"] == 2
    assert begin(collector="a").restored == {"references": "of a"}
    assert begin(collector="b").restored == {"references": "of b"}


def test_shards_that_write_at_the_same_time_lose_nothing(
    begin: Any, kit: Any, database: Postgres
) -> None:
    """Changes of one run are numbered across them, and none waits for another without end."""
    runs = [f"run-{number}" for number in range(60)]

    def write(history: Any, shard: int) -> None:
        for number in range(5):
            order = runs[::-1] if shard % 2 else runs
            changes = [kit.verdict(5 * shard + number, run_id=run) for run in order]
            history.put(changes=changes, summaries=[summary(number, float(number), order[0])])
            assert history.flush(30)

    histories = [begin(collector=str(shard)) for shard in range(3)]
    threads = [
        threading.Thread(target=write, args=(history, shard))
        for shard, history in enumerate(histories)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [lost(history) for history in histories] == [{}, {}, {}]
    for run in runs:
        assert sorted(ranks_of_changes(database, run)) == [*range(15)]
    assert database.ask("SELECT max(seq) FROM changes GROUP BY run_id") == [(14,)] * 60


def test_a_lost_connection_makes_the_history_late_and_loses_nothing(
    begin: Any, kit: Any, database: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """Who puts never waits. It is said once, and so is the end of it; the outage is counted."""
    caplog.set_level("INFO")
    released: list[int] = []
    history = begin(collector="a", release=released.append)
    history.put(windows=[kit.window(0)], changes=[kit.verdict(0)])
    assert history.flush()
    database.stop()
    try:
        history.put(windows=[kit.window(1)], states={"spool": {"sequence": 5}}, is_whole=True)
        eventually(lambda: lost(history))
        for number in (2, 3):
            history.put(windows=[kit.window(number)], changes=[kit.verdict(number)])
        assert not history.flush(0.1)
        assert lost(history) == {"unreachable": 1}
        assert released == []
        with pytest.raises(UnavailableError, match=r"PostgreSQL did not answer"):
            HistoryReader(database.url, busy_s=1.0)
    finally:
        database.start()
    assert history.flush(30)
    assert first_steps(database) == [0, 10, 20, 30]
    assert ranks_of_changes(database) == [0, 2, 3]
    assert lost(history) == {"unreachable": 1}
    assert released == [5]
    printed = [r.message for r in caplog.records if "the history postgresql" in r.message]
    assert [("cannot be" in m, "again" in m) for m in printed] == [(True, False), (False, True)]


def test_a_commit_that_got_no_answer_is_not_written_twice(
    begin: Any, kit: Any, database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has done it, and the connection is gone before it says so."""
    history = begin(collector="a")
    answers = iter([PostgresError("server closed the connection", "unreachable")])
    write_once = PostgresTables.write_once

    def write(self: PostgresTables, *what: Any) -> None:
        write_once(self, *what)
        for error in answers:
            raise error

    monkeypatch.setattr(PostgresTables, "write_once", write)
    history.put(windows=[kit.window(0)], changes=[kit.verdict(0)])
    assert history.flush(30)
    history.put(windows=[kit.window(1)], changes=[kit.verdict(1)])
    assert history.flush(30)
    assert first_steps(database) == [0, 10]
    assert ranks_of_changes(database) == [0, 1]
    assert lost(history) == {"unreachable": 1}


def test_what_a_stop_leaves_no_time_for_is_counted(
    begin: Any, kit: Any, database: Postgres
) -> None:
    """The server is away, and the collector has to end."""
    history = begin(collector="a")
    database.stop()
    try:
        history.put(changes=[kit.verdict(n) for n in range(5)])
        eventually(lambda: lost(history))
        history.close(30.0)
        assert not history._thread.is_alive()
        assert lost(history) == {"unreachable": 5}
    finally:
        database.start()


def test_without_a_server_at_the_start_the_collector_starts(
    begin: Any, kit: Any, database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits a little, and uses the database once it is there; states that it could not read stay
    as they are."""
    from otel_straggler.collector.history import history as queue

    monkeypatch.setattr(queue, "MAINTAIN_EVERY_S", 0.02)
    before = begin(collector="a")
    before.put(states={"references": 1})
    before.close()
    database.stop()
    try:
        of_before, fresh = begin(collector="a"), begin(collector="b")
        assert of_before.restored == {}
        assert lost(of_before) == {"unreachable": 1}
    finally:
        database.start()
    eventually(lambda: fresh._file.off is None)
    eventually(lambda: of_before._file.off == "unread")
    fresh.put(changes=[kit.verdict(7)])
    of_before.put(states={"references": 2})
    fresh.close()
    of_before.close()
    assert ranks_of_changes(database) == [7]
    assert begin(collector="a").restored == {"references": 1}


def test_a_second_collector_of_the_name_is_refused(begin: Any, kit: Any) -> None:
    """Two would restore the same states; when the first has ended, another may begin."""
    first = begin(collector="a")
    with pytest.raises(UnavailableError, match=r"another collector named 'a'.*collector_id"):
        begin(collector="a")
    first.close()
    begin(collector="a")


def test_another_version_is_refused(begin: Any, database: Postgres) -> None:
    """For writers and readers, and nothing is changed."""
    begin(collector="a").close()
    database.ask("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    for opening in (lambda: begin(collector="a"), lambda: HistoryReader(database.url)):
        with pytest.raises(UnavailableError, match=r"schema version 99.* A newer otel"):
            opening()


def test_a_reader_says_what_it_cannot_read(database: Postgres) -> None:
    """A database without a history, and what is no URL of one."""
    with pytest.raises(UnavailableError, match="without a history"):
        HistoryReader(database.url)
    with pytest.raises(ConfigError, match=r"postgresql://HOST.*nonsense"):
        HistoryReader("postgresql://h/x?nonsense=1")


def test_a_reader_cannot_write(begin: Any, database: Postgres) -> None:
    begin(collector="a")
    with HistoryReader(database.url) as reader, pytest.raises(UnavailableError, match="read-only"):
        reader._query("DELETE FROM runs RETURNING run_id")


def test_old_windows_go_when_there_are_too_many_bytes(
    begin: Any, kit: Any, clock: Any, database: Postgres
) -> None:
    """Those of all shards count together, once a minute; verdicts and states outlive them."""
    a, b = (begin(collector=name, max_bytes=MiB // 4) for name in "ab")
    a.put(changes=[kit.verdict()], states={"kept": np.arange(1000.0)})
    for number in range(20):
        history = (a, b)[number % 2]
        history.put(windows=[kit.window(number, ranks=1000)])
        assert history.flush()
    clock.now_s += 61
    a.put(states={"kept": np.arange(1001.0)})
    assert a.flush()
    kept = first_steps(database)
    assert 5 < len(kept) < 20
    assert kept == [n * 10 for n in range(20)][-len(kept) :]
    assert ranks_of_changes(database) == [0]
    assert a._file._tables.used_bytes() <= MiB // 4
    assert a.counts().size_bytes > 0
    assert lost(a) == {}


def test_a_damaged_state_is_left_out_and_the_others_are_restored(
    begin: Any, database: Postgres
) -> None:
    history = begin(collector="a")
    history.put(states={"good": 1, "bad": 2})
    history.close()
    database.ask("UPDATE state SET blob = 'no blob' WHERE key = 'bad'")
    history = begin(collector="a")
    assert history.restored == {"good": 1}
    assert lost(history) == {"damaged": 1}


def test_names_that_are_no_text_are_kept_as_far_as_they_can(
    begin: Any, kit: Any, database: Postgres
) -> None:
    """Half a surrogate pair in somebody's JSON; a NUL, which PostgreSQL has not; quotes."""
    names = ["a\ud800b", "a\0b", "'; DROP TABLE runs; --", "100 % :run_id ?"]
    history = begin(collector="a")
    history.put(windows=[kit.window(run_id=n) for n in names])
    history.put(changes=[kit.verdict(run_id=n) for n in names])
    history.close()
    assert lost(history) == {}
    with HistoryReader(database.url) as reader:
        runs = {run.run_id: run.windows + run.changes for run in reader.runs()}
    assert runs == dict.fromkeys(["a?b", "a\ufffdb", *names[2:]], 2)


def test_a_password_is_nowhere_to_be_read(
    begin: Any, database: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in logs nor in errors nor in what a setting prints."""
    url = Secret(database.url.replace("straggler@", "straggler:hunter2@"))
    with refused(database):
        begin(path=url, collector="a")
        with pytest.raises(UnavailableError) as error:
            HistoryReader(url, busy_s=1.0)
    shown = f"{url} {error.value} {caplog.text}"
    assert "hunter2" not in shown
    assert "postgresql://***@127.0.0.1" in shown


@contextmanager
def refused(database: Postgres) -> Iterator[None]:
    database.stop()
    try:
        yield
    finally:
        database.start()


def test_a_history_in_postgres_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the extra."""
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UnavailableError, match=r"otel-straggler\[postgres\]"):
        History("postgresql://h/x", collector="a").open()
