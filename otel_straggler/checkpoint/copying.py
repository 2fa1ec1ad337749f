"""The copy of a rank's state, which is written while the training goes on.

torch's ``StateDictStager`` copies each storage into shared memory, again and again into the same.
It is used by itself: in torch 2.11 and 2.12 ``DefaultStager`` closes it after its first use
(``staging.py``). Where it is missing, refuses, or is used up, the state is copied all the same.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.distributed.checkpoint.stateful import Stateful

from otel_straggler.checkpoint.entries import entries, reason_of, refused_entry
from otel_straggler.checkpoint.ready_memory import ReadyMemory
from otel_straggler.errors import UnavailableError

_LOG = logging.getLogger("otel_straggler")
_G: Final = 1e9
_SHOWN_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A state that the training no longer changes.

    Attributes:
        state: as DCP saves it, on the CPU.
        is_shared: the process that writes can have it without another copy.
        pinned: where memory is pinned, by address.
        state_s: seconds in ``state_dict()`` of its parts; copy_s: seconds of copying; memory_s: of
            waiting for the memory that was just being made ready.
    """

    state: dict[str, Any]
    is_shared: bool
    pinned: Set[int]
    state_s: float
    copy_s: float
    memory_s: float

    @property
    def sizes_bytes(self) -> tuple[int, int]:
        """Of all tensors, and of those in pinned memory. Cost: some µs for each tensor."""
        storages: dict[int, int] = {}
        for _, value in entries(self.state):
            if isinstance(value, torch.Tensor):
                local = value.to_local() if hasattr(value, "to_local") else value
                with contextlib.suppress(Exception):  # a subclass without a storage
                    storage = local.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
        pinned = sum(n for place, n in storages.items() if place in self.pinned)
        return sum(storages.values()), pinned

    @property
    def text(self) -> str:
        """What blocked, for the log."""
        size_bytes, pinned_bytes = self.sizes_bytes
        kind = "not shared"
        if self.is_shared:
            part = pinned_bytes / max(1, size_bytes)
            kind = "pinned" if part > 0.99 else f"{part:.0%} pinned" if part else "not pinned"
        speed = size_bytes / _G / max(self.copy_s, 1e-9)
        is_small = size_bytes < _G / 10
        size = f"{size_bytes / 1e6:.1f} MB" if is_small else f"{size_bytes / _G:.2f} GB"
        text = (
            f"{size} copied in {self.copy_s:.3f} s "
            f"({speed:.1f} GB/s, {kind}), state_dict() {self.state_s:.3f} s"
        )
        return text + (f", memory {self.memory_s:.3f} s" if self.memory_s >= _SHOWN_S else "")


class StateCopier:
    """Copies this rank's state for each save.

    Once torch's stager has refused twice in a row, it is no longer asked.
    """

    def __init__(self) -> None:
        self._memory = ReadyMemory()
        self._stager: Any = None
        self._why_plain = ""
        try:
            self._stager = self._new_stager()
        except Exception as error:  # noqa: BLE001  a private part of torch
            self._copy_plainly_from_now_on(error)

    @property
    def wants_memory(self) -> bool:
        """Whether :meth:`prepare` has something to do."""
        return not self._why_plain and self._memory.is_wanted

    def prepare(self, state: Any) -> None:
        """Make memory ready for copies of ``state`` in a thread; returns at once, and calls nothing
        of the state's."""
        if self._stager is not None:
            self._memory.prepare(state, self._stager)

    def copy(self, state: dict[str, Any]) -> StateCopy:
        """Returns once ``state`` may change again.

        Raises:
            UnavailableError: an entry cannot be copied; it is named.
        """
        began_s = time.monotonic()
        plain = {key: _state_of(key, each) for key, each in state.items()}
        read_s = time.monotonic()
        self._memory.pause()
        paused_s = time.monotonic()
        copied = None if self._why_plain else self._shared_copy(plain)
        is_shared = copied is not None
        if copied is None:
            copied = _plain_copy(plain)
        return StateCopy(
            state=copied,
            is_shared=is_shared,
            pinned=self._memory.pinned,
            state_s=read_s - began_s,
            copy_s=time.monotonic() - paused_s,
            memory_s=paused_s - read_s,
        )

    def close(self) -> None:
        self._memory.close()
        self._drop_stager()

    def _shared_copy(self, state: dict[str, Any]) -> dict[str, Any] | None:
        """None: the stager refuses, also a new one."""
        for is_new in (False, True):
            try:
                if is_new:
                    self._drop_stager()
                    self._stager = self._new_stager()
                return self._staged(state)
            except Exception as error:  # noqa: BLE001  then it is copied without
                refusal = error
        if not refused_entry(state, _copied):
            self._copy_plainly_from_now_on(refusal)
        return None

    def _staged(self, state: dict[str, Any]) -> dict[str, Any]:
        on_gpu = torch.cuda.is_initialized()
        staged: dict[str, Any] = self._stager.stage(state, non_blocking=on_gpu)
        if on_gpu:
            torch.accelerator.synchronize()
        return staged

    def _new_stager(self) -> Any:
        from torch.distributed.checkpoint._state_dict_stager import StateDictStager

        self._memory.forget()
        return StateDictStager(pin_memory=False, share_memory=True)  # ReadyMemory pins

    def _drop_stager(self) -> None:
        with contextlib.suppress(Exception):
            self._stager.close()
        self._stager = None

    def _copy_plainly_from_now_on(self, error: BaseException) -> None:
        self._why_plain = reason_of(error)
        self._drop_stager()
        _LOG.warning(
            "checkpoints: the stager of torch %s refuses this state (%s), so it is copied without, "
            "and written by a thread: saves block longer and slow the training meanwhile",
            torch.__version__, self._why_plain,
        )  # fmt: skip


def _state_of(key: str, part: Any) -> Any:
    """Raises:
    UnavailableError: its ``state_dict()`` raises.
    """
    if not isinstance(part, Stateful):
        return part
    try:
        return part.state_dict()
    except Exception as error:
        raise UnavailableError(
            f"state[{key!r}]: {type(part).__qualname__}.state_dict() raised {reason_of(error)}"
        ) from error


def _copied(value: Any) -> Any:
    """Without torch's stagers, into memory of this process: slower, and of everything."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        copies = [_copied(each) for each in value]
        is_named = hasattr(value, "_fields")
        return type(value)(*copies) if is_named else type(value)(copies)
    return copy.deepcopy(value)


def _plain_copy(state: dict[str, Any]) -> dict[str, Any]:
    """Raises:
    UnavailableError: an entry cannot be copied.
    """
    try:
        copied: dict[str, Any] = _copied(state)
    except Exception as error:
        raise UnavailableError(refused_entry(state, _copied) or reason_of(error)) from error
    return copied
