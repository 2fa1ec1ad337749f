"""The history: what is put is found again after a restart, and the file stays within its limits."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.history.failures import REASONS
from otel_straggler.collector.history.history import WriteQueue
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.errors import ConfigError, InputError, UnavailableError

from ..waiting import eventually

DAY_S = 86_400.0
MiB = 2**20
both = pytest.mark.parametrize("path", ["sqlite", "postgres"], indirect=True)
"""A file, and a PostgreSQL database."""


def lost(history: Any) -> dict[str, int]:
    """What was not kept, by reason, without zeros."""
    return {reason: n for reason, n in history.counts().failures.items() if n}


def ranks_of_changes(path: Path, run_id: str = "run") -> list[int | None]:
    with HistoryReader(path) as reader:
        return [verdict.rank for verdict in reader.changes(run_id)]


@both
def test_what_was_put_is_there_after_a_restart(begin: Any, kit: Any, path: Path) -> None:
    """States, changes of verdicts in order, windows."""
    first = begin()
    first.put(windows=[kit.window(0), kit.window(1)])
    states = {"references": {"best_s": np.arange(3.0)}, "judges/run": [1, None]}
    first.put(changes=[kit.verdict(5), kit.verdict(2, run_id="other")], states=states)
    first.put(changes=[kit.verdict(5, state="recovered")])
    first.close()
    restored = begin().restored
    assert restored["references"]["best_s"].tolist() == [0.0, 1.0, 2.0]
    assert restored["judges/run"] == [1, None]
    with HistoryReader(path) as reader:
        assert [(r.run_id, r.job, r.windows, r.changes) for r in reader.runs()] == [
            ("other", "", 0, 1), ("run", "job", 2, 2),
        ]  # fmt: skip
        newest = reader.windows("run")[-1]
        assert (newest.first_step, newest.last_step, newest.ranks) == (10, 19, 4)
        window = reader.window(newest.id)
        assert window is not None
        expected = kit.window(1).section_median_s
        np.testing.assert_allclose(window.median_s, expected, rtol=2e-5)
        assert [v.state for v in reader.changes("run")] == ["confirmed", "recovered"]
        assert [v.rank for v in reader.changes("other")] == [2]


@both
def test_a_newer_state_takes_the_place_of_the_older(begin: Any, path: Path) -> None:
    """One blob a key; what has not changed is not written again."""
    history = begin()
    history.put(states={"a": 1, "b": 1})
    history.flush()
    history.put(states={"a": 2})
    history.close()
    assert begin().restored == {"a": 2, "b": 1}


@both
def test_old_things_go(begin: Any, kit: Any, clock: Any, path: Path) -> None:
    """Windows, changes, states and then the run itself, when nobody has written for a week."""
    history = begin(keep_s=7 * DAY_S)
    history.put(windows=[kit.window(0)], changes=[kit.verdict()], states={"a": 1})
    history.flush()
    clock.now_s += 6 * DAY_S
    history.put(windows=[kit.window(1, run_id="new")])
    history.flush()
    with HistoryReader(path) as reader:
        assert [r.run_id for r in reader.runs()] == ["run", "new"]
    clock.now_s += 2 * DAY_S
    history.put(states={"b": 1})
    history.flush()
    with HistoryReader(path) as reader:
        assert [r.run_id for r in reader.runs()] == ["new"]
        assert len(reader.windows("new")) == 1
    assert history.counts().oldest_at_s == pytest.approx(clock.now_s - 2 * DAY_S)
    history.close()
    assert set(begin().restored) == {"b"}


@pytest.mark.parametrize("jump_s", [365 * DAY_S, 8 * DAY_S, -365 * DAY_S, -1.0])
def test_a_clock_that_is_set_deletes_nothing(
    begin: Any, kit: Any, clock: Any, path: Path, jump_s: float
) -> None:
    """Time goes on by a second each; the clock jumps, and back."""
    seconds = itertools.count()
    history = begin(keep_s=7 * DAY_S, monotonic_s=lambda: float(next(seconds)))
    for number, moved_s in enumerate([0.0, jump_s, jump_s, -2 * jump_s]):
        clock.now_s += moved_s
        history.put(windows=[kit.window(number, run_id=f"run-{number}")])
        history.flush()
    with HistoryReader(path) as reader:
        assert len(reader.runs()) == 4


def test_a_state_in_use_does_not_grow_old(begin: Any, clock: Any, path: Path) -> None:
    """Although it never changes."""
    history = begin(keep_s=7 * DAY_S)
    for _ in range(10):
        history.put(states={"a": 1})
        history.flush()
        assert keys(path) == {"a"}
        clock.now_s += DAY_S


def keys(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {row[0] for row in connection.execute("SELECT key FROM state")}
    finally:
        connection.close()


def test_the_file_stays_within_its_size_and_the_oldest_windows_go(
    begin: Any, kit: Any, path: Path
) -> None:
    """Verdicts and states outlive them."""
    history = begin(max_bytes=MiB // 4)
    history.put(changes=[kit.verdict()], states={"a": np.arange(1000.0)})
    for number in range(40):
        history.put(windows=[kit.window(number, ranks=1000)])
        assert history.flush()
        assert path.stat().st_size <= 1.1 * MiB // 4
    with HistoryReader(path) as reader:
        kept = [w.first_step for w in reader.windows("run")]
        assert 10 < len(kept) < 40
        assert kept == [n * 10 for n in range(40)][-len(kept) :]
        assert len(reader.changes("run")) == 1
    assert lost(history) == {}
    history.close()
    assert set(begin().restored) == {"a"}


def test_the_file_shrinks_when_less_may_be_kept(begin: Any, kit: Any, path: Path) -> None:
    """The pages go back to the file system, also after a week in which nobody trained."""
    history = begin(max_bytes=64 * MiB)
    history.put(windows=[kit.window(number, ranks=1000) for number in range(60)])
    history.close()
    large = path.stat().st_size
    smaller = begin(max_bytes=MiB // 4)
    smaller.close()
    assert path.stat().st_size <= MiB // 4 < large // 2
    assert smaller.counts().size_bytes <= MiB // 4


def test_verdicts_go_before_states_and_a_state_too_large_is_counted(
    begin: Any, kit: Any, path: Path
) -> None:
    """The limit holds whatever comes."""
    history = begin(max_bytes=MiB)
    random = np.random.default_rng(0)
    history.put(changes=[kit.verdict(n, sentence="x" * 2000) for n in range(1000)])
    history.put(states={"a": random.random(60_000)})
    assert history.flush()
    with HistoryReader(path) as reader:
        kept = [v.rank for v in reader.changes("run")]
    assert 0 < len(kept) < 500
    assert kept[-1] == 999
    assert lost(history) == {}
    history.put(states={"large": random.random(300_000)})
    history.flush()
    assert lost(history) == {"too_large": 1}
    assert path.stat().st_size <= 1.1 * MiB
    with HistoryReader(path) as reader:
        assert [v.rank for v in reader.changes("run")] == kept
    history.put(states={str(n): random.random(40_000) for n in range(5)})
    history.flush()
    assert lost(history)["too_large"] > 1
    assert path.stat().st_size <= 1.1 * MiB


# --- what goes wrong ----------------------------------------------------------------------------


def test_a_second_collector_is_refused_with_a_sentence(begin: Any, kit: Any, path: Path) -> None:
    """And does not disturb the first; when that one ends, another may begin."""
    first = begin()
    with pytest.raises(UnavailableError, match=f"in use by process {os.getpid()}.*--history"):
        begin()
    first.put(changes=[kit.verdict()])
    first.close()
    begin()
    assert ranks_of_changes(path) == [0]


@pytest.mark.parametrize(("version", "age"), [("99", "newer"), ("2", "older")])
def test_a_file_of_another_version_is_refused_and_left_as_it_is(
    begin: Any, path: Path, version: str, age: str
) -> None:
    """It belongs to another otel-straggler, for writers and readers."""
    begin().close()
    with sqlite3.connect(path) as connection:
        statement = "UPDATE meta SET value = ? WHERE key = 'schema_version'"
        connection.execute(statement, (version,))
    connection.close()
    before = path.read_bytes()
    for opening in (begin, lambda: HistoryReader(path)):
        with pytest.raises(UnavailableError, match=f"schema version {version}.* A {age} otel"):
            opening()
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_as_it_is(
    begin: Any, path: Path
) -> None:
    """A wrong path must not cost somebody's data."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        begin()
    with pytest.raises(ConfigError, match="another program"):
        HistoryReader(path)
    assert path.read_bytes() == before
    path.unlink()
    begin()


@pytest.mark.parametrize("kind", ["garbage", "cut off", "no tables"])
def test_a_damaged_file_is_moved_aside_and_a_new_one_begins(
    begin: Any, kit: Any, path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is deleted; it is said once and counted."""
    history = begin()
    history.put(windows=[kit.window(n, ranks=100) for n in range(20)], states={"a": 1})
    history.close()
    damage(path, kind)
    before = path.read_bytes()
    history = begin()
    assert history.restored == {}
    assert lost(history) == {"damaged": 1}
    (aside,) = path.parent.glob("history.db.damaged-*")
    assert len(aside.read_bytes()) == len(before)
    assert kind == "no tables" or aside.read_bytes() == before
    assert "20260921T" in aside.name
    history.put(states={"a": 2})
    history.close()
    assert begin().restored == {"a": 2}
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1


def damage(path: Path, kind: str) -> None:
    if kind == "no tables":
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE state")
        connection.close()
        return
    content = bytearray(path.read_bytes())
    if kind == "garbage":
        content[:200] = b"\xa5" * 200
    else:
        del content[len(content) // 2 :]
    path.write_bytes(bytes(content))


def test_damage_found_while_writing_does_not_end_the_history(
    begin: Any, kit: Any, path: Path
) -> None:
    """Pages that rot under a running collector: moved aside, and verdicts are written anew."""
    first = begin()
    first.put(windows=[kit.window(n, ranks=1000) for n in range(20)], states={"a": 1})
    first.close()
    history = begin(max_bytes=MiB // 4)
    with path.open("r+b") as file:  # every page but the first, under SQLite's cache and all
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    for number in range(40):
        history.put(windows=[kit.window(100 + number, ranks=1000)], changes=[kit.verdict(number)])
        assert history.flush()
    assert lost(history)["damaged"] >= 1
    assert list(path.parent.glob("history.db.damaged-*"))
    history.put(states={"a": 2})
    history.close()
    assert begin().restored == {"a": 2}
    assert ranks_of_changes(path)[-1] == 39


def test_a_damaged_state_is_left_out_and_the_others_are_restored(begin: Any, path: Path) -> None:
    """Better no reference than a wrong one."""
    history = begin()
    history.put(states={"good": 1, "bad": {"best_s": np.arange(100.0)}})
    history.close()
    with sqlite3.connect(path) as connection:
        (blob,) = connection.execute("SELECT blob FROM state WHERE key = 'bad'").fetchone()
        turned = bytes([*blob[:-20], blob[-20] ^ 1, *blob[-19:]])
        connection.execute("UPDATE state SET blob = ? WHERE key = 'bad'", (turned,))
        connection.execute(
            "INSERT INTO changes (run_id, seq, at_ns, written_at_ns, subject_id, verdict) "
            "VALUES ('r', 0, 0, 2000000000000000000, 's', '{')"
        )
    connection.close()
    history = begin()
    assert history.restored == {"good": 1}
    assert lost(history) == {"damaged": 1}
    with HistoryReader(path) as reader, pytest.raises(InputError, match=r"history\.db: change 1"):
        reader.changes("r")


def test_a_full_disk_is_counted_and_verdicts_are_written_once_there_is_room(
    begin: Any, kit: Any, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite's own limit stands for the disk. It is said once, and so is the end of it."""
    caplog.set_level("INFO")
    history = begin()
    history.put(states={"a": 1})
    history.flush()
    connection = history._file._database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(3):
        history.put(windows=[kit.window(number, ranks=1000)], changes=[kit.verdict(number)])
        assert history.flush()
    assert lost(history) == {"disk_full": 3}
    connection.execute("PRAGMA max_page_count = 1000000")
    history.put(states={"a": 2})
    history.close()
    assert begin().restored == {"a": 2}
    assert ranks_of_changes(path) == [0, 1, 2]
    printed = [r.message for r in caplog.records if "history.db" in r.message]
    assert [("cannot be" in m, "again" in m) for m in printed] == [(True, False), (False, True)]
    assert "no room on the disk (database or disk is full)" in printed[0]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """No file can be opened until the list is empty; it is tried again all the time."""
    from otel_straggler.collector.history import file, history

    full = ["full"]

    class NoRoom(file.Database):
        def __init__(self, path: Path, **how: bool) -> None:
            if full:
                raise sqlite3.OperationalError("database or disk is full")
            super().__init__(path, **how)

    monkeypatch.setattr(file, "Database", NoRoom)
    monkeypatch.setattr(file, "RETRY_S", 0.0)
    monkeypatch.setattr(history, "MAINTAIN_EVERY_S", 0.02)
    return full


def test_a_disk_that_is_full_at_the_start_is_used_once_there_is_room(
    begin: Any, kit: Any, path: Path, full_disk: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Till then all is counted, and both the trouble and its end are said."""
    caplog.set_level("INFO")
    history = begin()
    history.put(windows=[kit.window()], states={"a": 1})
    assert lost(history) == {"disk_full": 3}
    full_disk.clear()
    eventually(lambda: history._file.off is None)
    history.put(changes=[kit.verdict(7)], states={"a": 2})
    history.close()
    assert lost(history) == {"disk_full": 3}
    assert begin().restored == {"a": 2}
    assert ranks_of_changes(path) == [7]
    printed = [r.message for r in caplog.records if "history.db" in r.message]
    assert [("cannot be" in m, "again" in m) for m in printed] == [(True, False), (False, True)]


def test_what_was_not_read_at_the_start_is_not_written_over_later(
    begin: Any, path: Path, full_disk: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """References and verdicts of before are worth more than what came since; a restart goes on
    from them, which is said."""
    full_disk.clear()
    history = begin()
    history.put(states={"a": 1})
    history.close()
    full_disk.append("full")
    history = begin()
    full_disk.clear()
    eventually(lambda: history._file.off == "unread")
    history.put(states={"a": 2})
    history.close()
    assert lost(history) == {"disk_full": 1, "unread": 2}
    assert "restart the collector" in caplog.text
    assert begin().restored == {"a": 1}


def test_verdicts_that_never_found_room_are_counted_at_the_end(begin: Any, kit: Any) -> None:
    """None is lost without a count."""
    history = begin()
    history._file._database._connection.execute("PRAGMA query_only = 1")
    history.put(changes=[kit.verdict(n) for n in range(5)])
    history.close()
    assert lost(history) == {"read_only": 1 + 5}


def test_a_folder_that_may_not_be_written_to_leaves_the_collector_without_history(
    begin: Any, unprivileged: Path, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once; everything that is not kept is counted."""
    history = begin(path=unprivileged / "history.db")
    assert history.restored == {}
    assert lost(history) == {"read_only": 1}
    history.put(windows=[kit.window()], changes=[kit.verdict()], states={"a": 1})
    assert history.flush()
    history.close()
    assert lost(history) == {"read_only": 4}
    assert len(caplog.records) == 1
    assert "is not writable" in caplog.text


def test_a_file_that_may_only_be_read_leaves_the_collector_without_history(
    begin: Any, unprivileged: Path
) -> None:
    """The same where the file is there already, and readers still read it."""
    history = begin(path=unprivileged / "readable.db")
    assert lost(history) == {"read_only": 1}
    with HistoryReader(unprivileged / "readable.db") as reader:
        assert [r.run_id for r in reader.runs()] == ["run"]


def test_a_file_that_another_program_holds_leaves_the_collector_without_history(
    begin: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not read what was there, so it never writes over it."""
    from otel_straggler.collector.history import database

    history = begin()
    history.put(states={"a": 1})
    history.close()
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    history = begin()
    assert lost(history) == {"locked": 1}
    holder.execute("ROLLBACK")
    holder.close()
    history.put(states={"a": 2})
    history.close()
    assert begin().restored == {"a": 1}


def test_what_comes_faster_than_the_disk_is_counted(begin: Any, kit: Any, path: Path) -> None:
    """The thread that scores never waits; verdicts and the newest state are kept."""
    history = begin(max_waiting_bytes=100_000)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")  # the writer's thread waits in its first transaction
    history.put(states={"a": 0})
    threading.Event().wait(0.2)
    window = kit.window(ranks=200)
    for number in range(50):
        history.put(windows=[window], changes=[kit.verdict(number)])
    history.put(states={"a": 1})
    history.put(states={"a": 2})
    holder.execute("ROLLBACK")
    holder.close()
    history.close()
    assert 40 <= lost(history)["queue_full"] < 50
    assert begin().restored == {"a": 2}
    assert ranks_of_changes(path) == [*range(50)]


def test_what_cannot_be_encoded_does_not_keep_the_rest_from_being_written(
    begin: Any, kit: Any
) -> None:
    """A mistake of ours is counted and logged."""
    history = begin()
    odd = dataclasses.replace(kit.window(), section_count=None)  # type: ignore[type-var]
    history.put(windows=[odd, kit.window()], changes=[kit.verdict()], states={"a": 1, "b": {2}})
    history.close()
    assert lost(history) == {"error": 2}
    assert begin().restored == {"a": 1}


def test_names_that_are_no_text_are_kept_as_far_as_they_can(
    begin: Any, kit: Any, path: Path
) -> None:
    """Half a surrogate pair in somebody's JSON; a NUL; quotes."""
    names = ["a\ud800b", "a\0b", "'; DROP TABLE runs; --"]
    history = begin()
    history.put(windows=[kit.window(run_id=n) for n in names])
    history.put(changes=[kit.verdict(run_id=n) for n in names])
    history.close()
    assert lost(history) == {}
    with HistoryReader(path) as reader:
        assert sorted(r.run_id for r in reader.runs()) == sorted(["a?b", *names[1:]])


def test_a_file_that_somebody_has_deleted_is_begun_anew(
    begin: Any, kit: Any, clock: Any, path: Path
) -> None:
    """Within a minute; else all would go into a file without a name."""
    history = begin()
    history.put(changes=[kit.verdict(0)])
    history.flush()
    for file in path.parent.glob("history.db*"):
        file.unlink()
    clock.now_s += 61
    history.put(changes=[kit.verdict(1)])
    history.flush()
    history.put(changes=[kit.verdict(2)], states={"a": 1})
    history.close()
    assert begin().restored == {"a": 1}
    assert ranks_of_changes(path)[-1] == 2


@pytest.mark.parametrize("replaced", ["log removed", "older copy", "another program's"])
def test_a_file_that_somebody_has_replaced_is_not_written_past(
    begin: Any, kit: Any, clock: Any, path: Path, replaced: str
) -> None:
    """What is written would have no name, and be gone after a restart. Within a minute it goes into
    the file that is there, unless that is none of ours; that it happened is counted."""
    history = begin()
    history.put(changes=[kit.verdict(0)])
    history.flush()
    if replaced == "log removed":
        path.with_name(f"{path.name}-wal").unlink()
    else:
        copy = path.with_name("copy.db")
        with contextlib.closing(sqlite3.connect(copy)) as other:
            if replaced == "older copy":
                with contextlib.closing(sqlite3.connect(path)) as source:
                    source.backup(other)
            else:
                other.execute("CREATE TABLE theirs (a)")
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink()
        copy.rename(path)
    clock.now_s += 61
    for number in (1, 2):
        history.put(changes=[kit.verdict(number)])
        history.flush()
    assert lost(history)["damaged"] == 1
    history.close()
    if replaced == "another program's":
        assert lost(history)["read_only"] >= 1
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    else:
        assert ranks_of_changes(path)[0] == 0
        assert ranks_of_changes(path)[-1] == 2


@both
def test_readers_read_while_the_writer_writes(begin: Any, kit: Any, path: Path) -> None:
    """Each sees one moment: as many changes as windows, for they are written together."""
    history = begin(max_bytes=4 * MiB)
    history.put(windows=[kit.window()], changes=[kit.verdict()])
    history.flush()
    ended = threading.Event()
    seen: list[tuple[int, int]] = []
    errors: list[Exception] = []

    def read() -> None:
        try:
            with HistoryReader(path) as reader:
                while not ended.is_set():
                    (run,) = reader.runs()
                    seen.append((run.windows, run.changes))
                    for entry in reader.windows("run")[:3]:
                        reader.window(entry.id)
        except Exception as error:  # noqa: BLE001 - told by the test
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(60):
        history.put(windows=[kit.window(number, ranks=500)], changes=[kit.verdict(number)])
        assert history.flush(30)
    ended.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert len(set(seen)) > 1
    assert lost(history) == {}


def test_a_reader_says_what_it_cannot_read(path: Path) -> None:
    """No file, no database: with the path and what to do."""
    with pytest.raises(UnavailableError, match="no file"):
        HistoryReader(path)
    for content in ("", "run_id,rank"):
        path.write_text(content)
        with pytest.raises(UnavailableError, match="an empty file"):
            HistoryReader(path)
    with pytest.raises(UnavailableError, match="a folder"):
        HistoryReader(path.parent)
    path.write_text("run_id,rank\n" * 100)
    with pytest.raises(InputError, match="cannot read"):
        HistoryReader(path)


def test_every_reason_has_a_sentence() -> None:
    """They are in the log and on the page of names."""
    assert all(REASONS.values())


def test_a_checkpoint_that_fails_is_written_with_the_next_one(
    begin: Any, kit: Any, path: Path
) -> None:
    """Its windows are kept, and the spool keeps its requests until they are in the file."""
    released: list[int] = []
    history = begin(release=released.append)
    connection = history._file._database._connection
    connection.execute("PRAGMA query_only = 1")
    history.put(windows=[kit.window(0)], states={"spool": {"sequence": 5}}, is_whole=True)
    assert history.flush()
    assert released == []
    connection.execute("PRAGMA query_only = 0")
    history.put(windows=[kit.window(1)], states={"spool": {"sequence": 9}}, is_whole=True)
    assert history.flush()
    assert released == [9]
    history.close()
    with HistoryReader(path) as reader:
        assert [w.first_step for w in reader.windows("run")] == [0, 10]


def test_a_checkpoint_is_queued_as_a_whole_or_not_at_all(kit: Any) -> None:
    """Half of one would lose rows, or count them twice; it is tried again with the next save."""
    queue = WriteQueue(100_000)
    windows = [kit.window(number, ranks=200) for number in range(20)]
    states = {"spool": {"sequence": 1}}
    assert queue.put(windows, [], states, is_whole=True) == 0
    assert queue.put(windows, [], states, is_whole=True) > 0
    batch = queue.drain(0.0)
    assert batch is not None
    assert (len(batch.windows), len(batch.states)) == (20, 1)
    assert queue.put(windows, [], states, is_whole=True) == 0
