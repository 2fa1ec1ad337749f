"""The copy of a state: by torch's stager, by one that is used up, by none; what is said of it."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import _state_dict_stager as private

from otel_straggler.checkpoint import Manager, ready_memory, training_state
from otel_straggler.checkpoint.copying import StateCopier, StateCopy
from otel_straggler.checkpoint.entries import reason_of

from .states import manager_in, restored, state_at

LOGGER = "otel_straggler"
Stager = private.StateDictStager


class ClosedAfterUse(Stager):  # type: ignore[misc, valid-type]
    """As in torch 2.11.0: ``staging.py`` line 253 closes the stager at the end of each ``stage()``,
    and ``_state_dict_stager.py`` line 274 then empties the table by which it copies: the next
    ``stage()`` raises ``KeyError(<class 'type'>)``. Read in the wheel, and seen on an H200."""

    made = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        ClosedAfterUse.made += 1

    def stage(self, state_dict: Any, non_blocking: bool = False) -> Any:
        if not self._deepcopy_dispatch:
            raise KeyError(type)
        staged = super().stage(state_dict, non_blocking=non_blocking)
        self.close()
        return staged


class Refusing:
    """A stager of a torch to come."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def stage(self, *_: Any, **__: Any) -> Any:
        raise KeyError(type)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def save_three(folder: Path, state_of: Any = state_at) -> list[int]:
    """The steps that were saved."""
    with manager_in(folder, keep=9) as manager:
        paths = [(step, manager.save(step, state_of(step))) for step in (1, 2, 3)]
    return [step for step, path in paths if path is not None]


def restores_all(folder: Path) -> bool:
    return all(
        restored(folder, step)[1]["weights"].tolist() == [float(step)] * 1_000 for step in (1, 2, 3)
    )


def test_a_stager_that_is_used_up_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each save has a new one, and nothing is said."""
    monkeypatch.setattr(private, "StateDictStager", ClosedAfterUse)
    monkeypatch.setattr(ClosedAfterUse, "made", 0)
    with caplog.at_level(logging.WARNING, LOGGER):
        assert save_three(tmp_path / "c") == [1, 2, 3]
    assert ClosedAfterUse.made == 3
    assert not lines(caplog)
    assert restores_all(tmp_path / "c")


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_stager_that_refuses_or_is_missing_costs_one_warning_and_no_save(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_missing: bool,
) -> None:
    """The state is copied without it; where it is missing, that is said at the start."""
    if is_missing:
        monkeypatch.setitem(sys.modules, private.__name__, None)  # an import of it fails
        Manager(tmp_path / "c", handle_sigterm=False).close()
        assert "is copied without" in caplog.text
        caplog.clear()
    else:
        monkeypatch.setattr(private, "StateDictStager", Refusing)
    with caplog.at_level(logging.WARNING, LOGGER):
        assert save_three(tmp_path / "c") == [1, 2, 3]
    [line] = lines(caplog)
    assert line.startswith(f"checkpoints: the stager of torch {torch.__version__} refuses")
    assert "(ModuleNotFoundError" in line if is_missing else "(KeyError: type)" in line
    assert restores_all(tmp_path / "c")


def test_the_plain_copy_is_one_that_the_training_does_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Containers, scalars and objects of the user's, too."""
    monkeypatch.setattr(private, "StateDictStager", Refusing)
    copier = StateCopier()
    state = {"w": torch.ones(3), "of": [torch.zeros(()), ({1, 2}, "text")], "n": {"k": [1]}}
    copied = copier.copy(state)
    state["w"].zero_()
    state["of"][0].fill_(5.0)
    state["of"][1][0].add(3)
    state["n"]["k"].append(2)
    assert not copied.is_shared
    assert copied.state["w"].tolist() == [1.0] * 3
    assert copied.state["of"][0].item() == 0.0
    assert copied.state["of"][1] == ({1, 2}, "text")
    assert copied.state["n"] == {"k": [1]}


class Broken:
    """A part whose state cannot be had."""

    def state_dict(self) -> dict[str, Any]:
        raise KeyError(type)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("entry", "path", "named"),
    [
        (threading.Lock(), "state['extra']['of rank'][1]", "a _thread.lock"),
        (lambda: 0, "state['extra']['of rank'][1]", "a function"),
        (Broken(), "state['part']", "Broken.state_dict() raised KeyError: type"),
    ],
    ids=["not copied", "not pickled", "raises"],
)
def test_a_save_that_fails_names_the_entry_and_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: Any, path: str, named: str
) -> None:
    """Never by the repr of a class, as ``KeyError(type)`` reads; the next save is saved."""
    bad = {"part": entry} if isinstance(entry, Broken) else {"extra": {"of rank": [1, entry]}}
    with manager_in(tmp_path / "c") as manager, caplog.at_level(logging.WARNING, LOGGER):
        assert manager.save(1, {**state_at(1), **bad}) is None
        [line] = lines(caplog)
        assert manager.save(2, state_at(2)) is not None
    assert line.startswith(f"the checkpoint of step 1 was not saved: {path}")
    assert named in line
    assert "<" not in line.replace("<locals>", "").replace("<lambda>", "").replace("<function", "")
    if not isinstance(entry, Broken):
        assert "Leave it out of the state" in line
    assert len(lines(caplog)) == 1


def test_a_reason_has_the_name_of_a_class() -> None:
    assert reason_of(KeyError(torch.Tensor)) == "KeyError: torch.Tensor"


class FakeCudart:
    """As documented in the CUDA runtime API, "Memory Management": ``cudaHostRegister`` returns 0,
    or the number of an error, and pins until ``cudaHostUnregister``."""

    def __init__(self, refused: int = 0) -> None:
        self.pinned: dict[int, int] = {}
        self.flags: set[int] = set()
        self._refused = refused

    def cudaHostRegister(self, place: int, size: int, flags: int) -> int:  # noqa: N802
        if self._refused or place in self.pinned:
            return self._refused or 1
        self.pinned[place] = size
        self.flags.add(flags)
        return 0

    def cudaHostUnregister(self, place: int) -> int:  # noqa: N802
        return 0 if self.pinned.pop(place, 0) else 1


def large_state() -> tuple[Any, Any, dict[str, Any]]:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    return model, optimizer, training_state(model, optimizer)


@pytest.fixture
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_memory, "MIN_BYTES", 64)
    monkeypatch.setattr(ready_memory, "WORTH_BYTES", 64)


@pytest.mark.usefixtures("_all_is_large")
def test_memory_is_ready_before_the_first_save(tmp_path: Path) -> None:
    """From the first step on which none is due; the copy goes there, and changes nothing of it."""
    *_, state = large_state()
    with manager_in(tmp_path / "c", every_steps=3) as manager:
        assert manager._saver.wants_memory
        manager.step(1, state)
        assert not manager._saver.wants_memory
        copier = manager._saver._copier
        assert copier._memory._thread is not None
        copier._memory._thread.join()
        ready = {each.data_ptr() for each in copier._stager._cached_storage_mapping.values()}
        assert len(ready) == 6  # weight and bias, with two momenta each
        copied = copier.copy(state).state["training"]
        used = {each.untyped_storage().data_ptr() for each in copied["model"].values()}
        assert used <= ready
        manager.step(3, state)
        assert manager.wait() is not None


@pytest.mark.usefixtures("_all_is_large")
def test_what_a_save_has_interrupted_is_made_ready_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The save waits for no more than the piece that is being made."""
    *_, state = large_state()
    copier = StateCopier()
    begun, go_on = threading.Event(), threading.Event()
    make, made = copier._memory._make_ready, []

    def slow(source: Any, stager: Any, **options: Any) -> None:
        begun.set()
        go_on.wait(30.0)
        made.append(source)
        make(source, stager, **options)

    monkeypatch.setattr(copier._memory, "_make_ready", slow)
    copier.prepare(state)
    assert begun.wait(30.0)
    copier._memory._stop.set()  # as pause() does first
    go_on.set()
    copied = copier.copy(state)
    assert len(made) == 1
    assert copier.wants_memory
    assert copied.is_shared
    copier.prepare(state)
    assert copier._memory._thread is not None
    copier._memory._thread.join()
    assert len(made) == 7
    assert not copier.wants_memory


@pytest.mark.usefixtures("_all_is_large")
@pytest.mark.parametrize("refused", [0, 2], ids=["pinned", "refused"])
def test_on_a_gpu_the_memory_is_pinned_in_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: int
) -> None:
    """And no longer once it is closed; a refusal is one line, and the state is copied unpinned."""
    cudart = FakeCudart(refused)
    allowed: list[str] = []
    on_device: Any = lambda device: threading.Lock()  # noqa: E731  any context manager
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", on_device)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    monkeypatch.setattr(
        ready_memory,
        "_allow_captures",
        lambda: allowed.append(threading.current_thread().name) or True,
    )
    state = {"w": torch.ones(1_000), "of": torch.zeros(2_000)}
    with caplog.at_level(logging.INFO, LOGGER):
        copier = StateCopier()
        copier.prepare(state)
        assert copier._memory._thread is not None
        copier._memory._thread.join()
        copied = copier.copy(state)
    assert allowed == ["otel-straggler-checkpoint-memory"]
    if refused:
        [line] = lines(caplog)
        assert "not pinned (cudaHostRegister gave 2" in line
        assert copied.sizes_bytes == (12_000, 0)
        assert "not pinned" in copied.text
    else:
        assert sorted(cudart.pinned.values()) == [4_000, 8_000]
        assert cudart.flags == {1}
        assert copied.sizes_bytes == (12_000, 12_000)
        assert "GB/s, pinned" in copied.text
    assert copied.state["w"].tolist() == state["w"].tolist()
    del copied
    copier.close()
    assert not cudart.pinned


def test_the_log_says_how_fast_and_from_what_memory_a_state_was_copied() -> None:
    """And what else blocked."""
    weights = torch.zeros(50_000_000)
    place = weights.untyped_storage().data_ptr()
    copied = StateCopy({"w": weights, "same": [weights[:5]]}, True, {place}, 0.01, 0.025, 0.5)
    assert copied.text == (
        "0.20 GB copied in 0.025 s (8.0 GB/s, pinned), state_dict() 0.010 s, memory 0.500 s"
    )
    copied = StateCopy({"w": weights[:1].clone()}, False, set(), 0.0, 0.001, 0.0)
    assert copied.text == "0.0 MB copied in 0.001 s (0.0 GB/s, not shared), state_dict() 0.000 s"


def test_without_the_driver_nothing_is_pinned_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would break another thread's capture of a CUDA graph."""
    monkeypatch.setattr(ready_memory, "DRIVER", "libcuda-is-not-here.so")
    assert not ready_memory._allow_captures()


def test_a_small_state_is_not_worth_a_thread() -> None:
    copier = StateCopier()
    copier.prepare({"w": torch.ones(1_000)})
    assert copier._memory._thread is None
    assert not copier.wants_memory
