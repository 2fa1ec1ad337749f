"""``otel-straggler history backup`` and ``restore``: a copy while a collector writes, and back."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.collector.history.reader import HistoryReader

REFUSED = 2


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What the verb prints."""
    result = main(["history", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert result == code, err
    assert "Traceback" not in err
    return err if code else out


def stored(path: Path) -> tuple[int, int]:
    """Windows and changes of verdicts of the run."""
    with HistoryReader(path) as reader:
        [run] = reader.runs()
        return run.windows, run.changes


def test_a_copy_of_a_history_that_is_written_has_all_of_one_moment(
    begin: Any, kit: Any, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each batch has a window and a change, so a copy has as many of one as of the other; the
    writer loses nothing and waits for nobody."""
    history = begin()
    history.put(windows=[kit.window(0)], changes=[kit.verdict(0)])
    history.flush()
    stopping = threading.Event()
    written = 1

    def write() -> None:
        nonlocal written
        while not stopping.is_set():
            history.put(windows=[kit.window(written)], changes=[kit.verdict(written)])
            history.flush()
            written += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        copies = [tmp_path / f"copy-{n}.db" for n in range(5)]
        for copy in copies:
            assert f"{copy}: 1 run, " in said(capsys, "backup", path, copy)
    finally:
        stopping.set()
        writing.join()
    numbers = [stored(copy) for copy in copies]
    assert all(windows == changes >= 1 for windows, changes in numbers)
    assert numbers == sorted(numbers)
    history.close()
    assert stored(path) == (written, written)
    assert not any(history.counts().failures.values())


def test_a_copy_is_one_private_file(
    begin: Any, kit: Any, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing next to it, which somebody would forget to keep; readable where it cannot be
    written."""
    history = begin()
    history.put(windows=[kit.window(0)])
    history.flush()
    folder = tmp_path / "copies"
    folder.mkdir()
    said(capsys, "backup", path, folder / "copy.db")
    assert [file.name for file in folder.iterdir()] == ["copy.db"]
    assert stat.S_IMODE((folder / "copy.db").stat().st_mode) == 0o600
    folder.chmod(0o500)
    try:
        assert "1 window" in said(capsys, folder / "copy.db")
        assert [file.name for file in folder.iterdir()] == ["copy.db"]
    finally:
        folder.chmod(0o700)


def test_a_copy_that_is_put_back_is_what_a_collector_resumes_from(
    begin: Any, kit: Any, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """States as well as windows; the file of before is there under another name."""
    copy = tmp_path / "copy.db"
    first = begin()
    first.put(windows=[kit.window(0)], states={"references": {"best_s": 1.0}})
    first.flush()
    said(capsys, "backup", path, copy)
    first.put(windows=[kit.window(1)], states={"references": {"best_s": 2.0}})
    first.close()
    printed = said(capsys, "restore", copy, path)
    [aside] = path.parent.glob(f"{path.name}.before-*")
    assert str(aside) in printed
    assert stored(aside) == (2, 0)
    assert begin().restored == {"references": {"best_s": 1.0}}
    assert stored(path) == (1, 0)
    assert stored(copy) == (1, 0)


def test_what_root_puts_back_belongs_to_the_service(
    begin: Any, kit: Any, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose folder it is: it could not open a file of root's. Also where it never had a history."""
    if os.geteuid() != 0:
        pytest.skip("not root: it would show that a service can read what root has put back")
    history = begin()
    history.put(windows=[kit.window(0)])
    history.close()
    copy = tmp_path / "copy.db"
    said(capsys, "backup", path, copy)
    folder = tmp_path / "service"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65_534, 65_534)
    for _ in range(2):
        said(capsys, "restore", copy, folder / "history.db")
        files = list(folder.iterdir())
        assert {file.stat().st_uid for file in files} == {65_534}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 3  # the history, its lock, and the one of before


def test_nothing_is_put_back_under_a_running_collector(
    begin: Any, kit: Any, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would go on writing the file of before."""
    history = begin()
    history.put(windows=[kit.window(0)])
    history.flush()
    copy = tmp_path / "copy.db"
    said(capsys, "backup", path, copy)
    refused = said(capsys, "restore", copy, path, code=REFUSED)
    assert f"a history in use by process {os.getpid()}" in refused
    assert list(path.parent.glob("*.before-*")) == []
    history.put(windows=[kit.window(1)])
    history.close()
    assert stored(path) == (2, 0)


def test_a_copy_by_a_newer_version_is_refused_with_a_sentence(
    begin: Any, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By restore, by the check of a start, and by the start; nothing is changed."""
    begin().close()
    newer = tmp_path / "newer.db"
    said(capsys, "backup", path, newer)
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    connection.close()
    before = path.read_bytes(), newer.read_bytes()
    sentence = "got 'schema version 99'; expected version 5. A newer otel-straggler wrote it: use"
    assert sentence in said(capsys, "restore", newer, path, code=REFUSED)
    for options in (["--check"], []):
        assert main(["collector", "--history", str(newer), *options]) == REFUSED
        assert sentence in capsys.readouterr().err
    assert (path.read_bytes(), newer.read_bytes()) == before


def test_what_cannot_be_copied_is_one_sentence_and_leaves_nothing(
    begin: Any, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No history, a name that is taken, a database server, a damaged page."""
    begin().close()
    taken, free = tmp_path / "taken.db", tmp_path / "free.db"
    taken.write_text("somebody's")
    assert "got 'no file'" in said(capsys, "backup", tmp_path / "none", free, code=REFUSED)
    assert "a file that exists" in said(capsys, "backup", path, taken, code=REFUSED)
    assert "pg_dump" in said(capsys, "backup", "postgresql://h/d", free, code=REFUSED)
    nowhere = said(capsys, "backup", path, tmp_path / "no" / "copy.db", code=REFUSED)
    assert "No such file or directory" in nowhere
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    damaged = said(capsys, "backup", path, free, code=REFUSED)
    assert str(path) in damaged
    assert not free.exists()
    assert taken.read_text() == "somebody's"
    assert list(tmp_path.glob(".*.part")) == []


def test_a_file_named_like_a_verb_is_listed_by_its_path(
    begin: Any, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``history FILE`` is ``history list FILE``."""
    begin().close()
    path.rename(path.parent / "backup")
    monkeypatch.chdir(path.parent)
    assert said(capsys, "./backup") == said(capsys, "list", "backup") == "no runs\n"
