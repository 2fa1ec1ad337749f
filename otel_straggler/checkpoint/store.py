"""What ranks write for each other into a store of torch.distributed, without a collective.

A store outlives ranks: what a dead one has not written is missed by name, within a deadline.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from otel_straggler.checkpoint import plain
from otel_straggler.errors import UnavailableError, UsageError

_CHUNK_BYTES: Final = 4 << 20
"""The server takes 8 MiB in one value."""
_MAX_CHUNKS: Final = 256
_MAX_BYTES: Final = 1 << 30
"""Of a message, once it is unpacked."""
_MAX_REASON: Final = 2_000
_POLL_S: Final = 0.01
_ALONE: dict[str, Any] = {}


class RankFailedError(UnavailableError):
    """Raised when another rank has given up a save, or has not answered in time."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a process of any rank reaches the store; picklable.

    Attributes:
        host, port: of a TCPStore; port 0: ``host`` is the path of a FileStore, or, if that is
            empty, there is one rank and no store.
        prefix: before every key.
    """

    host: str
    port: int
    prefix: str

    def under(self, prefix: str) -> StoreAddress:
        return replace(self, prefix=f"{self.prefix}/{prefix}")

    def connect(self, timeout_s: float) -> Any:
        """A connection of its own: one that waits holds up all that share it."""
        from torch import distributed

        timeout = timedelta(seconds=timeout_s)
        if self.port:
            store = distributed.TCPStore(
                self.host, self.port, is_master=False, wait_for_workers=False, timeout=timeout
            )
        elif self.host:
            store = distributed.FileStore(self.host, -1)
        else:
            store = _ALONE.setdefault(self.prefix.split("/")[0], distributed.HashStore())
        return distributed.PrefixStore(self.prefix, store)


def address_of_default_store(prefix: str) -> StoreAddress:
    """The store that ``init_process_group`` was given; of one rank without a group, none.

    Raises:
        UsageError: it is one that no other process can reach.
    """
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return StoreAddress("", 0, prefix)
    store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if hasattr(store, "host"):
        return StoreAddress(store.host, store.port, prefix)
    if hasattr(store, "path"):
        return StoreAddress(store.path, 0, prefix)
    if distributed.get_world_size() == 1:
        return StoreAddress("", 0, prefix)
    raise UsageError.of(
        "checkpoint.Manager", type(store).__name__, "a TCPStore or FileStore",
        "Call init_process_group() with init_method='env://'.",
    )  # fmt: skip


class Exchange:
    """Messages of the ranks that take part in one operation.

    Args:
        ranks: who takes part; the first is the coordinator.
        deadline_s: by the monotonic clock.
    """

    def __init__(self, store: Any, rank: int, ranks: tuple[int, ...], deadline_s: float) -> None:
        self._store = store
        self.rank = rank
        self.ranks = ranks
        self._deadline_s = deadline_s
        self._own: dict[str, Any] = {}

    @property
    def is_coordinator(self) -> bool:
        return self.rank == self.ranks[0]

    def send(self, name: str, content: object, to: int | None = None) -> None:
        """Leave a message for the coordinator, or for one rank.

        Raises:
            TypeError: it has something in it that :func:`.plain.encode` does not take.
        """
        key = f"{name}/{self.rank}" if to is None else f"{name}/to/{to}"
        if to is None and self.is_coordinator:
            self._own[key] = content  # for itself
            return
        packed = zlib.compress(plain.encode(content), 1)
        starts = range(0, len(packed), _CHUNK_BYTES)
        for number, start in enumerate(starts):
            self._store.set(f"{key}/{number}", packed[start : start + _CHUNK_BYTES])
        self._store.set(key, str(len(starts)))

    def gather(self, name: str, kind: Any, ranks: Iterable[int] | None = None) -> list[Any]:
        """The messages of all ranks, or of ``ranks``, in order.

        Args:
            kind: the type that each must be of, as in an annotation.

        Raises:
            RankFailedError: one has given up, has not written by the deadline, or has written
                something else.
        """
        keys = {rank: f"{name}/{rank}" for rank in (self.ranks if ranks is None else ranks)}
        self._wait({rank: key for rank, key in keys.items() if key not in self._own})
        return [
            self._own.pop(key) if key in self._own else self._read(key, rank, kind)
            for rank, key in keys.items()
        ]

    def receive(self, name: str, kind: Any, sender: int | None = None) -> Any:
        """A message of the coordinator, or of ``sender``, to this rank; else as :meth:`gather`."""
        key = f"{name}/to/{self.rank}"
        sender = self.ranks[0] if sender is None else sender
        self._wait({sender: key})
        return self._read(key, sender, kind)

    def give_up(self, reason: str) -> None:
        """Let the others stop waiting; never raises."""
        with contextlib.suppress(Exception):
            self._store.set("failed", f"rank {self.rank}: {reason}")

    def _wait(self, keys: dict[int, str]) -> None:
        missing = dict(keys)
        while True:
            missing = {rank: key for rank, key in missing.items() if not self._store.check([key])}
            if not missing:
                return
            if self._store.check(["failed"]):
                reason = self._store.get("failed").decode("utf-8", "replace")
                raise RankFailedError(" ".join(reason.split())[:_MAX_REASON])
            if time.monotonic() > self._deadline_s:
                raise RankFailedError(f"no word from {_ranks_text(missing)} in time")
            time.sleep(_POLL_S)

    def _read(self, key: str, sender: int, kind: Any) -> Any:
        """A message, which is deleted."""
        try:
            parts = [f"{key}/{number}" for number in range(_count(self._store.get(key)))]
            packed = b"".join(map(self._store.get, parts))
            content = plain.decode(_unpacked(packed), kind)
        except (ValueError, zlib.error) as error:
            raise RankFailedError.of(
                f"message {key} of rank {sender}", str(error), "what this version sends",
                "Run the same version of otel-straggler on all ranks; it was not used.",
            ) from error  # fmt: skip
        for each in (key, *parts):
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._store.delete_key(each)
        return content


def _count(text: bytes) -> int:
    number = int(text)
    if not 0 < number <= _MAX_CHUNKS:
        raise ValueError(f"{number} parts")
    return number


def _unpacked(packed: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(packed, _MAX_BYTES)
    if not unpacking.eof:
        raise ValueError(f"cut off, or more than {_MAX_BYTES:,} bytes")
    return content


def _ranks_text(ranks: Iterable[int]) -> str:
    listed = sorted(ranks)
    shown = ", ".join(map(str, listed[:8])) + (", ..." if len(listed) > 8 else "")
    return f"rank{'s' if len(listed) > 1 else ''} {shown}"
