"""Memory for copies of a state, made ready in a thread before the first save needs it.

The pages of new shared memory cost seconds per GB when they are first touched, and to pin it more.
So a thread touches and pins it while the training goes on, and stops at once when a
save is due: what is not ready then is made by the save itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
import weakref
from collections.abc import Iterable
from typing import Any, Final

import torch

from otel_straggler.checkpoint.entries import reason_of, tensors_of

_LOG = logging.getLogger("otel_straggler")
MIN_BYTES: Final = 1 << 20
"""Of a storage that is made ready."""
WORTH_BYTES: Final = 64 << 20
"""Of a state: less is copied quickly enough."""
_CHUNK_BYTES: Final = 64 << 20
"""Touched before the thread looks whether it should stop."""
_NICE: Final = 10
_PORTABLE: Final = 1
_RELAXED: Final = 2
DRIVER: Final = "libcuda.so.1"


class ReadyMemory:
    """Fills the cache of a ``StateDictStager``: source storage to storage on the CPU.

    Attributes:
        is_wanted: :meth:`prepare` has something to do.
        pinned: the addresses of storages that are pinned.
    """

    def __init__(self) -> None:
        self.is_wanted = True
        self.pinned: set[int] = set()
        self._may_pin = torch.cuda.is_available()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def prepare(self, state: Any, stager: Any) -> None:
        """Start the thread, unless it runs or the state is small. Never raises, and calls no
        ``state_dict()``."""
        if self._thread is not None and self._thread.is_alive():
            return
        self.is_wanted = False
        try:
            if not callable(state):  # only a save may call it
                self._start(state, stager)
        except Exception as error:  # noqa: BLE001  objects of the user's
            self._log(error)

    def _start(self, state: Any, stager: Any) -> None:
        sources = {}
        for tensor in tensors_of(state):
            with contextlib.suppress(Exception):  # a subclass without a storage
                storage = tensor.untyped_storage()
                sources[storage.data_ptr(), storage.device] = storage
        large = [each for each in sources.values() if each.nbytes() >= MIN_BYTES]
        if sum(each.nbytes() for each in large) < WORTH_BYTES:
            return
        self._stop.clear()
        may_pin = self._may_pin and torch.cuda.is_initialized()
        device = torch.cuda.current_device() if may_pin else None
        self._thread = threading.Thread(
            target=self._work, args=(large, stager, device),
            name="otel-straggler-checkpoint-memory", daemon=True,
        )  # fmt: skip
        self._thread.start()

    def pause(self) -> None:
        """Returns once the thread has stopped; what it had left is wanted again."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def forget(self) -> None:
        """There is a new stager, without any memory."""
        self.pause()
        self.is_wanted = True

    def close(self) -> None:
        self.pause()
        self.is_wanted = False

    def _work(self, sources: Iterable[Any], stager: Any, device: int | None) -> None:
        try:
            with contextlib.ExitStack() as on_device:
                if device is None:
                    with contextlib.suppress(OSError):
                        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
                else:  # pinning holds a lock of the driver, so it must not wait for a core
                    on_device.enter_context(torch.cuda.device(device))
                    self._may_pin = _allow_captures()
                for source in sources:
                    if not self._stop.is_set():
                        self._make_ready(source, stager, may_pin=device is not None)
            self.is_wanted = self._stop.is_set()
        except Exception as error:  # noqa: BLE001  a save makes its memory by itself
            self._log(error)

    def _log(self, error: BaseException) -> None:
        _LOG.info(
            "checkpoints: memory for copies is not ready (%s); the first save blocks longer",
            reason_of(error),
        )

    def _make_ready(self, source: Any, stager: Any, *, may_pin: bool) -> None:
        cache = stager._cached_storage_mapping  # noqa: SLF001  in torch_parts.py
        storage = cache.get(source)
        if storage is None:
            storage = type(source)._new_shared(source.nbytes(), device="cpu")  # noqa: SLF001
            cache[source] = storage
            place, left = storage.data_ptr(), storage.nbytes()
            while left > 0 and not self._stop.is_set():
                size = min(left, _CHUNK_BYTES)
                ctypes.memset(place, 0, size)
                place, left = place + size, left - size
        may_pin = may_pin and self._may_pin and not self._stop.is_set()
        if may_pin and storage.data_ptr() not in self.pinned:
            self._pin(storage)

    def _pin(self, storage: Any) -> None:
        """Until the storage is freed; if it is refused, nothing more is pinned."""
        cudart, place = torch.cuda.cudart(), storage.data_ptr()
        code = int(cudart.cudaHostRegister(place, storage.nbytes(), _PORTABLE))
        if code:
            self._may_pin = False
            _LOG.info(
                "checkpoints: memory for copies is not pinned (cudaHostRegister gave %d for %d MB)"
                ", so saves block longer", code, storage.nbytes() >> 20,
            )  # fmt: skip
            return
        self.pinned.add(place)
        release = weakref.finalize(storage, self._unpin, cudart, place)
        release.atexit = False  # CUDA may be gone by then

    def _unpin(self, cudart: Any, place: int) -> None:
        self.pinned.discard(place)
        cudart.cudaHostUnregister(place)


def _allow_captures() -> bool:
    """Whether this thread may pin while another one captures a CUDA graph: by default that would
    invalidate the capture (CUDA driver API, ``cuThreadExchangeStreamCaptureMode``)."""
    try:
        exchange = ctypes.CDLL(DRIVER).cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return False
    return int(exchange(ctypes.byref(ctypes.c_int(_RELAXED)))) == 0
