"""Watches of imports: called once a module has run, whoever else watches or looks for it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_straggler.client.imports import ImportWatch

NAME = "otel_straggler_watched_in_tests"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported, and is forgotten afterwards."""
    path = tmp_path / f"{NAME}.py"
    path.write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield path
    sys.modules.pop(NAME, None)
    sys.meta_path[:] = finders


def values() -> list[int]:
    return [sys.modules[NAME].value]


def test_a_watch_is_called_once_the_module_has_run() -> None:
    """And goes away."""
    calls: list[list[int]] = []
    watch = ImportWatch(NAME, lambda: calls.append(values()))
    watch.start()
    assert not calls
    importlib.import_module(NAME)
    assert calls == [[1]]
    assert watch not in sys.meta_path


def test_a_module_that_is_there_already_calls_at_once() -> None:
    """Without anything left behind."""
    importlib.import_module(NAME)
    calls: list[list[int]] = []
    watch = ImportWatch(NAME, lambda: calls.append(values()))
    watch.start()
    assert calls == [[1]]
    assert watch not in sys.meta_path


def test_several_watches_of_one_module_are_all_called() -> None:
    """Each asks those that come after it."""
    calls: list[int] = []
    watches = [ImportWatch(NAME, lambda at=at: calls.append(at)) for at in range(3)]  # type: ignore[misc]
    for watch in watches:
        watch.start()
        watch.start()
    importlib.import_module(NAME)
    assert sorted(calls) == [0, 1, 2]
    assert not set(watches) & set(sys.meta_path)


def test_who_only_looks_for_a_module_does_not_call() -> None:
    """As libraries do that want to know what is installed."""
    calls: list[int] = []
    watch = ImportWatch(NAME, lambda: calls.append(1))
    watch.start()
    assert importlib.util.find_spec(NAME) is not None
    assert not calls
    importlib.import_module(NAME)
    assert calls == [1]


def test_an_import_that_fails_may_be_tried_again(module: Path) -> None:
    """Only a module that has run to its end is there."""
    calls: list[int] = []
    watch = ImportWatch(NAME, lambda: calls.append(1))
    watch.start()
    module.write_text("raise KeyError('not yet')\n")
    with pytest.raises(KeyError, match="not yet"):
        importlib.import_module(NAME)
    assert not calls
    module.write_text("value = 'now, and of another size'\n")
    importlib.invalidate_caches()
    importlib.import_module(NAME)
    assert calls == [1]


def test_a_module_that_is_just_being_imported_is_not_there_yet(module: Path) -> None:
    """It starts its watch itself."""
    module.write_text(
        "from otel_straggler.client.imports import ImportWatch\n"
        f"ImportWatch({NAME!r}, lambda: 1 / 0).start()\n"
    )
    importlib.import_module(NAME)


def test_a_watch_that_was_stopped_is_not_called() -> None:
    """Stopping twice is no error."""
    watch = ImportWatch(NAME, lambda: pytest.fail("called"))
    watch.start()
    watch.stop()
    watch.stop()
    importlib.import_module(NAME)
