"""One save, in the process that writes: DCP's planner and writer, with what they lack.

Ranks exchange plans and results through the store, so that a dead rank costs a deadline and no
broken process group. Every file is hashed while it is written, and the folder gets its name last.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint import FileSystemWriter, Metadata
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from otel_straggler.checkpoint.dcp_files import FilePrefix, HashingFileSystem
from otel_straggler.checkpoint.entries import reason_of
from otel_straggler.checkpoint.folder import SAVING, commit
from otel_straggler.checkpoint.layout import Layout
from otel_straggler.checkpoint.manifest import METADATA, Files, Manifest
from otel_straggler.checkpoint.pacing import Pacer, step_back
from otel_straggler.checkpoint.store import Exchange, RankFailedError, StoreAddress
from otel_straggler.checkpoint.streams import FileAddress, FileServer, fetch
from otel_straggler.errors import StragglerError, UnavailableError

PHASES: Final = ("stage", "plan", "write", "replicate", "commit")
REPORT: Final = "otel_straggler_report"
"""The attribute of a save's Metadata with its :class:`SaveReport`."""
WRITER_PID: Final = "otel_straggler_pid"
"""The attribute of the Metadata of a :class:`NothingWriter` with the number of its process."""


@dataclass(frozen=True, kw_only=True)
class SavePlanContext:
    """What every rank knows of a save before it begins; picklable.

    Attributes:
        folder: of the checkpoints; name: of this one in it.
        layout: which ranks have the same ``folder``, and who keeps copies of whose files.
        ranks: who takes part; the first coordinates.
        timeout_s: after which a rank that has not answered is missed.
        spread_s: that writing should take at least, unless it is urgent.
        urgent: (1,) a tensor in shared memory, which is set once somebody waits; None: nobody does.
    """

    folder: Path
    layout: Layout
    name: str
    step: int
    rank: int
    ranks: tuple[int, ...]
    world_size: int
    reason: str
    created_at_unix_s: float
    address: StoreAddress
    timeout_s: float
    parent_pid: int
    spread_s: float = 0.0
    urgent: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class SaveReport:
    """How a save went on one rank.

    Attributes:
        phases: (name, start and end in seconds since 1970) in order.
        size_bytes: that this rank wrote.
        path: of the checkpoint.
        write_s: seconds that each rank wrote; on the coordinator alone.
    """

    phases: tuple[tuple[str, float, float], ...]
    size_bytes: int
    path: Path
    write_s: dict[int, float] = field(default_factory=dict)


class Operation:
    """A save that has begun in this process; planner and writer share it."""

    def __init__(self, context: SavePlanContext) -> None:
        self.context = context
        self.phases: list[tuple[str, float, float]] = []
        self._exchange: Exchange | None = None
        self._server: FileServer | None = None

    def __getstate__(self) -> SavePlanContext:
        return self.context

    def __setstate__(self, context: SavePlanContext) -> None:
        """In the dedicated process: DCP logs each save there, and warns of no process group."""
        self.__init__(context)  # type: ignore[misc]
        if os.getpid() != context.parent_pid:
            quiet_dcp()
            logging.getLogger().setLevel(logging.WARNING)

    def is_urgent(self) -> bool:
        urgent = self.context.urgent
        return urgent is not None and bool(urgent[0])

    @property
    def exchange(self) -> Exchange:
        if self._exchange is None:
            its = self.context
            store = its.address.under(its.name).connect(its.timeout_s)
            deadline_s = time.monotonic() + its.timeout_s
            self._exchange = Exchange(store, its.rank, its.ranks, deadline_s)
        return self._exchange

    @property
    def file_address(self) -> FileAddress:
        """Where other nodes fetch this rank's files, until :meth:`close`."""
        if self._server is None:
            self._server = FileServer(self.context.folder, self.context.address.host)
        return self._server.address

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a part of the save; an error in it is reported to the other ranks."""
        start_s = time.time()
        try:
            yield
        except RankFailedError:
            self.close()
            raise
        except BaseException as error:
            self.close()
            text = f"{name}: {root_cause(error)}"
            self.exchange.give_up(text)
            raise UnavailableError(text) from error
        self.phases.append((name, start_s, time.time()))


class ExchangingPlanner(DefaultSavePlanner):  # type: ignore[misc]
    """DCP's planner for ``no_dist``: the global plan is made from the plans in the store."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._operation = operation

    def set_up_planner(
        self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        is_coordinator = self._operation.exchange.is_coordinator
        super().set_up_planner(state_dict, storage_meta, is_coordinator)

    def create_local_plan(self) -> Any:
        with self._operation.phase("plan"):
            return super().create_local_plan()

    def create_global_plan(self, all_plans: list[Any]) -> tuple[list[Any], Metadata]:
        exchange = self._operation.exchange
        with self._operation.phase("plan"):
            exchange.send("plan", all_plans[0])
            if not exchange.is_coordinator:
                return [exchange.receive("global_plan")], Metadata(state_dict_metadata={})
            plans, metadata = super().create_global_plan(exchange.gather("plan"))
            _refuse_gaps(metadata)
            for rank, plan in zip(exchange.ranks[1:], plans[1:], strict=True):
                exchange.send("global_plan", plan, to=rank)
            return plans[:1], metadata


class CommittingWriter(FileSystemWriter):  # type: ignore[misc]
    """DCP's writer of files, which also hashes them and commits the checkpoint."""

    def __init__(self, operation: Operation, **options: Any) -> None:
        its = operation.context
        super().__init__(its.folder / f"{SAVING}{its.name}", overwrite=False, **options)
        self._operation = operation
        self.fs = HashingFileSystem(Pacer(its.spread_s, operation.is_urgent))

    def prepare_local_plan(self, plan: Any) -> Any:
        with self._operation.phase("plan"):
            self.fs.mkdir(self.path)
            return replace(plan, storage_data=FilePrefix(f"__{self._operation.context.rank}_"))

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        return plans

    def write_data(self, plan: Any, planner: Any) -> Any:
        with self._operation.phase("write"):
            self.fs.pacer.begin(sum(item.tensor_storage_size() or 0 for item in plan.items))
            return super().write_data(plan, planner)

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        operation, its = self._operation, self._operation.context
        own, size_bytes = self.fs.entries(), self.fs.size_bytes
        copies: Files = {}
        keepers = its.layout.keepers(its.ranks)
        if any(keepers.values()):
            with operation.phase("replicate"):
                copies = self._fetch_copies(own, keepers)
        part = _Part(
            results=results[0], own=own, copies=copies, phases_s=_durations(operation.phases)
        )
        parts: dict[int, _Part] = {}
        with operation.phase("commit"):
            operation.exchange.send("result", part)
            if operation.exchange.is_coordinator:
                parts = self._commit_all(metadata)
            else:
                self._commit_node()
        operation.close()
        report = SaveReport(
            phases=tuple(operation.phases),
            size_bytes=size_bytes,
            path=its.folder / its.name,
            write_s={rank: each.phases_s.get("write", 0.0) for rank, each in parts.items()},
        )
        setattr(metadata, REPORT, report)

    def _fetch_copies(self, own: Files, keepers: Mapping[int, list[int]]) -> Files:
        """Of the files of ranks on other nodes that this rank keeps."""
        its, exchange = self._operation.context, self._operation.exchange
        for keeper in keepers[its.rank]:
            content = (self._operation.file_address, own)
            exchange.send(f"written/{its.rank}", content, to=keeper)
        copies: Files = {}
        for writer in (rank for rank, chosen in keepers.items() if its.rank in chosen):
            address, files = exchange.receive(f"written/{writer}", sender=writer)
            for name, entry in files.items():
                fetch(address, self.path.name, name, entry, self.path / name)
            copies.update(files)
        return copies

    def _commit_all(self, metadata: Metadata) -> dict[int, _Part]:
        """Have each node name its folder, this one last: then the checkpoint exists."""
        its, exchange = self._operation.context, self._operation.exchange
        parts = dict(zip(exchange.ranks, exchange.gather("result"), strict=True))
        super().finish(metadata, [part.results for part in parts.values()])
        manifests = _manifests(its, parts, self.fs.entries())
        others = [rank for rank in manifests if rank != its.rank]
        for leader in others:
            content = (manifests[leader], self._operation.file_address)
            exchange.send("commit", content, to=leader)
        exchange.gather("renamed", others)
        commit(self.path, manifests[its.rank])
        for rank in exchange.ranks[1:]:
            exchange.send("committed", True, to=rank)
        return parts

    def _commit_node(self) -> None:
        its, exchange = self._operation.context, self._operation.exchange
        if its.layout.leader(its.rank, its.ranks) == its.rank:
            manifest, address = exchange.receive("commit")
            entry = manifest.files[METADATA]
            fetch(address, self.path.name, METADATA, entry, self.path / METADATA)
            commit(self.path, manifest)
            exchange.send("renamed", True)
        exchange.receive("committed")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What a rank reports before the commit.

    Attributes:
        results: DCP's.
        own: files that it wrote; copies: those that it fetched.
    """

    results: list[Any]
    own: Files
    copies: Files
    phases_s: dict[str, float]


def _manifests(
    its: SavePlanContext, parts: dict[int, _Part], coordinators: Files
) -> dict[int, Manifest]:
    """For each node's first rank.

    Args:
        coordinators: files of the coordinator, with DCP's metadata, which every node has.
    """
    every = {name: entry for part in parts.values() for name, entry in part.own.items()}
    every |= coordinators
    manifests = {}
    for members in its.layout.node_ranks(its.ranks).values():
        here = {METADATA: every[METADATA]}
        for rank in members:
            here |= parts[rank].own | parts[rank].copies
        manifests[members[0]] = Manifest(
            step=its.step,
            world_size=its.world_size,
            created_at_unix_s=its.created_at_unix_s,
            reason=its.reason,
            files=here,
            elsewhere={name: entry for name, entry in every.items() if name not in here},
            phases_s={str(rank): part.phases_s for rank, part in parts.items()},
        )
    return manifests


class NothingWriter(FileSystemWriter):  # type: ignore[misc]
    """Writes nothing: starts DCP's dedicated process before it is needed, and sets how it ends.

    Args:
        sigterm_delay_s: what the process lives on after SIGTERM, for a scheduler may send it to all
            processes of a training, which then saves; 0: nothing.
    """

    def __init__(self, sigterm_delay_s: float) -> None:
        super().__init__(os.devnull)
        self._pid = os.getpid()
        self._sigterm_delay_s = sigterm_delay_s

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() != self._pid:
            quiet_dcp()
            logging.getLogger().setLevel(logging.WARNING)
            step_back()
            _delay_sigterm(self._sigterm_delay_s)

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def write_data(self, plan: Any, planner: Any) -> Any:  # noqa: ARG002 (DCP's signature)
        from torch.futures import Future

        future: Any = Future()
        future.set_result([])
        return future

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:  # noqa: ARG002
        setattr(metadata, WRITER_PID, os.getpid())


def _delay_sigterm(delay_s: float) -> None:
    """The alarm ends the process by its default action."""
    if delay_s > 0.0:
        signal.signal(
            signal.SIGTERM, lambda *_: signal.setitimer(signal.ITIMER_REAL, delay_s) and None
        )
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def root_cause(error: BaseException) -> str:
    """Of what DCP raises: the first rank's error without its traceback; and where torch found a
    file shorter than it should be, what the system had said. No class is shown by its ``repr``."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, OSError):
        seen = seen.__context__
    if seen is not None and str(seen):
        return str(seen)
    return str(error) if isinstance(error, StragglerError) else reason_of(error)


def quiet_dcp() -> None:
    """We exchange through the store, so DCP's warning of a missing process group is none."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or")


def _refuse_gaps(metadata: Metadata) -> None:
    """DCP does not look for them in the plan of one rank, which may be the only one that lives.

    Raises:
        UnavailableError: a part of a tensor is on no rank that takes part.
    """
    for name, value in metadata.state_dict_metadata.items():
        chunks = getattr(value, "chunks", None)
        if chunks is None:
            continue
        if sum(math.prod(chunk.sizes) for chunk in chunks) != math.prod(value.size):
            raise UnavailableError(f"a part of {name} is on no rank that takes part")


def _durations(phases: list[tuple[str, float, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, start_s, end_s in phases:
        sums[name] = round(sums.get(name, 0.0) + end_s - start_s, 6)
    return sums
