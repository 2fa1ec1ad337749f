"""Which ranks share a folder of checkpoints and which a node, and who of them holds the locks."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_straggler.checkpoint import plain
from otel_straggler.checkpoint.folder import locked, open_folder, remove_leftovers
from otel_straggler.checkpoint.layout import Layout, LocalTier
from otel_straggler.checkpoint.store import StoreAddress, address_of_default_store
from otel_straggler.checkpoint.trust import Trust, check_private
from otel_straggler.errors import InputError, StragglerError, UnavailableError, UsageError

if TYPE_CHECKING:
    from otel_straggler.checkpoint.saving import SavePlanContext

_LOG = logging.getLogger("otel_straggler")
_KEY: Final = "otel_straggler/checkpoint"
_ERRORS: Final[dict[str, type[StragglerError]]] = {
    kind.__name__: kind for kind in (InputError, UsageError, UnavailableError)
}
_Opened = tuple[str, str]
"""The session, and the run that the folder is of."""
_Place = tuple[str, str, str]
"""Host, folder and domain of a rank."""
_joined = 0


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A rank's place among those that save together.

    Attributes:
        folder: of the persistent checkpoints.
        local_folder: of those on this node; the same as ``folder`` without a local tier.
        layout: which ranks share a ``local_folder``.
        session: the same on all ranks, and of this attempt alone.
        has_group: whether there is a process group.
        trust: who may have written what is restored, and what it may be.
    """

    folder: Path
    local_folder: Path
    layout: Layout
    rank: int
    world_size: int
    session: str
    address: StoreAddress
    has_group: bool
    trust: Trust
    _lock: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(range(self.world_size))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def has_local(self) -> bool:
        return self.local_folder != self.folder

    @property
    def leads_node(self) -> bool:
        return self.layout.leader(self.rank, self.ranks) == self.rank

    def context(
        self,
        name: str,
        step: int,
        reason: str,
        ranks: tuple[int, ...],
        timeout_s: float,
        *,
        is_direct: bool = False,
    ) -> SavePlanContext:
        """Args:
        is_direct: to the persistent folder, although there is a local tier.
        """
        from otel_straggler.checkpoint.saving import SavePlanContext

        return SavePlanContext(
            folder=self.folder if is_direct else self.local_folder,
            layout=Layout.shared(self.world_size) if is_direct else self.layout,
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
            keys=self.trust.keys,
            is_shared=self.trust.is_shared,
        )

    def leave(self) -> None:
        self._lock.close()


def join(folder: Path, local: LocalTier | None = None, trust: Trust | None = None) -> Membership:
    """Open the folders: rank 0 locks and cleans ``folder``, a rank of each node the one there, and
    all get to know what came of it.

    Raises:
        InputError: one holds something else, or another run, or others can change it; nothing was
            changed.
        UsageError: another training writes to it, or the process group cannot be used.
    """
    from torch import distributed

    global _joined  # noqa: PLW0603  managers are made in the same order on all ranks
    _joined += 1
    has_group = distributed.is_available() and distributed.is_initialized()
    rank, world_size = (
        (distributed.get_rank(), distributed.get_world_size()) if has_group else (0, 1)
    )
    store = distributed.distributed_c10d._get_default_store() if has_group else None  # noqa: SLF001
    trust = trust or Trust()
    with contextlib.ExitStack() as lock:
        joining = _Joining(store, rank, world_size, lock, is_shared=trust.is_shared)
        session, run = joining.share("folder", _Opened, lambda: joining.open(folder))
        layout = joining.layout(local)
        local_folder = folder if local is None else Path(local.folder).absolute()
        if local is not None:
            joining.open_local(local_folder, layout, run)
        return Membership(
            folder=folder,
            local_folder=local_folder,
            layout=layout,
            rank=rank,
            world_size=world_size,
            session=session,
            address=address_of_default_store(f"{_KEY}/{session}"),
            has_group=has_group,
            trust=trust,
            _lock=lock.pop_all(),
        )


class _Joining:
    """What ranks leave in the store while they join."""

    def __init__(
        self, store: Any, rank: int, world_size: int, lock: contextlib.ExitStack, *, is_shared: bool
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._lock = lock
        self._is_shared = is_shared
        self._prefix = f"{_KEY}/{_joined}"

    def share(self, name: str, kind: Any, opening: Callable[[], Any]) -> Any:
        """What rank 0 got, or its error, on all ranks."""
        key = f"{self._prefix}/{name}"
        if self._rank:
            return _content_or_error(self._store.get(key), kind)
        packed = _packed(opening)
        if self._store is not None:
            self._store.set(key, packed)
        return _content_or_error(packed, kind)

    def gather(
        self, name: str, kind: Any, packed: str, ranks: list[int]
    ) -> Callable[[], list[Any]]:
        """Leave this for rank 0; returns what it calls to have those of ``ranks``, or an error."""
        key = f"{self._prefix}/{name}"
        if self._store is None:
            return lambda: [_content_or_error(packed, kind)]
        if self._rank in ranks:
            self._store.set(f"{key}/{self._rank}", packed)
        return lambda: [_content_or_error(self._store.get(f"{key}/{each}"), kind) for each in ranks]

    def layout(self, local: LocalTier | None) -> Layout:
        """Raises:
        UsageError: only some ranks have a local tier.
        """
        place = ["", "", ""]
        if local is not None:
            folder = str(Path(local.folder).absolute())
            place = [socket.gethostname(), folder, local.domain]
        ranks = list(range(self._world_size))
        places = self.gather("places", _Place, _packed(lambda: place), ranks)
        shared = self.share("layout", list[_Place], places)
        if len({bool(host) for host, _, _ in shared}) > 1:
            raise UsageError.of(
                "Manager(local=...)", "given on some ranks", "it on all ranks, or on none",
                "Make the manager alike on all ranks.",
            )  # fmt: skip
        layout = Layout.of_places(shared, 0 if local is None else local.replicas)
        if local is not None and self._rank == 0:
            _warn_of_missing_peers(layout)
        return layout

    def open_local(self, folder: Path, layout: Layout, run: str) -> None:
        """Raises:
        InputError, UsageError, UnavailableError: of any node, on all ranks.
        """
        ranks = list(range(self._world_size))
        leaders = [members[0] for members in layout.node_ranks(ranks).values()]
        packed = ""
        if self._rank in leaders:
            packed = _packed(lambda: self.open(folder, run))
        opened = self.gather("local", _Opened, packed, leaders)
        self.share("opened", list[_Opened], opened)

    def open(self, folder: Path, run: str = "") -> tuple[str, str]:
        """Returns the session, and the run that the folder is of."""
        session = uuid.uuid4().hex[:12]
        try:
            run = open_folder(folder, run, is_shared=self._is_shared)
            if not self._is_shared:
                check_private(folder)
            self._lock.enter_context(locked(folder, session))
            remove_leftovers(folder)
        except OSError as error:
            raise UnavailableError(f"{folder}: {error.strerror or error}") from error
        return session, run


def _warn_of_missing_peers(layout: Layout) -> None:
    fewest = layout.possible_replicas(range(len(layout.nodes)))
    if fewest < layout.replicas:
        _LOG.warning(
            "checkpoints: local ones have %d of %d replicas, as there are not as many nodes in "
            "other domains; what is lost with a node is restored from the persistent folder",
            fewest, layout.replicas,
        )  # fmt: skip


def _packed(opening: Callable[[], Any]) -> str:
    try:
        return json.dumps([opening(), "", ""])
    except StragglerError as error:
        return json.dumps([None, type(error).__name__, str(error)])


def _content_or_error(packed: str | bytes, of: Any) -> Any:
    """Raises:
    StragglerError: of the rank that has left it.
    UnavailableError: it is neither that nor a value of the type ``of``.
    """
    try:
        content, kind, message = plain.decode(packed, tuple[of | None, str, str])
    except ValueError as error:
        raise UnavailableError.of(
            "what a rank left in the store", str(error), "what this version leaves",
            "Run the same version of otel-straggler on all ranks.",
        ) from error  # fmt: skip
    if kind:
        raise _ERRORS.get(kind, UnavailableError)(message)
    return content
