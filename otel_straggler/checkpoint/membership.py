"""Which ranks share a folder of checkpoints, and who of them holds its lock."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_straggler.checkpoint.folder import locked, open_folder, remove_leftovers
from otel_straggler.checkpoint.store import StoreAddress, address_of_default_store
from otel_straggler.errors import InputError, StragglerError, UnavailableError, UsageError

if TYPE_CHECKING:
    from otel_straggler.checkpoint.saving import SavePlanContext

_KEY: Final = "otel_straggler/checkpoint"
_ERRORS: Final[dict[str, type[StragglerError]]] = {
    kind.__name__: kind for kind in (InputError, UsageError, UnavailableError)
}
_joined = 0


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A rank's place among those that save together.

    Attributes:
        session: the same on all ranks, and of this attempt alone.
        has_group: whether there is a process group.
    """

    folder: Path
    rank: int
    world_size: int
    session: str
    address: StoreAddress
    has_group: bool
    _lock: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(range(self.world_size))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def context(
        self,
        name: str,
        step: int,
        reason: str,
        ranks: tuple[int, ...],
        timeout_s: float,
    ) -> SavePlanContext:
        from otel_straggler.checkpoint.saving import SavePlanContext

        return SavePlanContext(
            folder=self.folder,
            name=name,
            step=step,
            rank=self.rank,
            ranks=ranks,
            world_size=self.world_size,
            reason=reason,
            created_at_unix_s=time.time(),
            address=self.address,
            timeout_s=timeout_s,
            parent_pid=os.getpid(),
        )

    def leave(self) -> None:
        self._lock.close()


def join(folder: Path) -> Membership:
    """Open the folder: rank 0 locks and cleans it, and the others get to know what came of it.

    Raises:
        InputError: it holds something else; nothing was changed.
        UsageError: another training writes to it, or the process group cannot be used.
    """
    from torch import distributed

    global _joined  # noqa: PLW0603  managers are made in the same order on all ranks
    _joined += 1
    has_group = distributed.is_available() and distributed.is_initialized()
    rank, world_size = (
        (distributed.get_rank(), distributed.get_world_size()) if has_group else (0, 1)
    )
    lock = contextlib.ExitStack()
    store = distributed.distributed_c10d._get_default_store() if has_group else None  # noqa: SLF001
    session = _share(store, f"{_KEY}/{_joined}", lambda: _open(folder, lock), is_first=rank == 0)
    return Membership(
        folder=folder,
        rank=rank,
        world_size=world_size,
        session=session,
        address=address_of_default_store(f"{_KEY}/{session}"),
        has_group=has_group,
        _lock=lock,
    )


def _open(folder: Path, lock: contextlib.ExitStack) -> str:
    try:
        open_folder(folder)
        lock.enter_context(locked(folder))
        remove_leftovers(folder)
    except OSError as error:
        raise UnavailableError(f"{folder}: {error.strerror or error}") from error
    return uuid.uuid4().hex[:12]


def _share(store: Any, key: str, opening: Callable[[], str], *, is_first: bool) -> str:
    """What rank 0 got, or its error, on all ranks."""
    if not is_first:
        session, kind, message = json.loads(store.get(key))
        if kind:
            raise _ERRORS.get(kind, UnavailableError)(message)
        return str(session)
    session, answer = "", ["", "", ""]
    try:
        session = opening()
        answer[0] = session
    except StragglerError as error:
        answer[1:] = [type(error).__name__, str(error)]
        raise
    finally:
        if store is not None:
            store.set(key, json.dumps(answer))
    return session
