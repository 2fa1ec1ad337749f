"""One save, in the process that writes: DCP's planner and writer, with what they lack.

Ranks exchange plans and results through the store, so that a dead rank costs a deadline and no
broken process group. Every file is hashed while it is written, and the folder gets its name last.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import signal
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from torch.distributed.checkpoint import FileSystemWriter, Metadata
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem

from otel_straggler.checkpoint.folder import SAVING, FileEntry, Manifest, commit
from otel_straggler.checkpoint.store import Exchange, RankFailedError, StoreAddress
from otel_straggler.errors import UnavailableError

PHASES: Final = ("stage", "plan", "write", "commit")
REPORT: Final = "otel_straggler_report"
"""The attribute of a save's Metadata with its :class:`SaveReport`."""


@dataclass(frozen=True, kw_only=True)
class SavePlanContext:
    """What every rank knows of a save before it begins; picklable.

    Attributes:
        folder: of the checkpoints; name: of this one in it.
        ranks: who takes part; the first coordinates.
        timeout_s: after which a rank that has not answered is missed.
    """

    folder: Path
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

    def __getstate__(self) -> SavePlanContext:
        return self.context

    def __setstate__(self, context: SavePlanContext) -> None:
        """In the dedicated process: DCP logs each save there, and warns of no process group."""
        self.__init__(context)  # type: ignore[misc]
        if os.getpid() != context.parent_pid:
            quiet_dcp()
            logging.getLogger().setLevel(logging.WARNING)

    @property
    def exchange(self) -> Exchange:
        if self._exchange is None:
            its = self.context
            store = its.address.under(its.name).connect(its.timeout_s)
            deadline_s = time.monotonic() + its.timeout_s
            self._exchange = Exchange(store, its.rank, its.ranks, deadline_s)
        return self._exchange

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a part of the save; an error in it is reported to the other ranks."""
        start_s = time.time()
        try:
            yield
        except RankFailedError:
            raise
        except BaseException as error:
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
        self.fs = HashingFileSystem()

    def prepare_local_plan(self, plan: Any) -> Any:
        with self._operation.phase("plan"):
            self.fs.mkdir(self.path)
            return replace(plan, storage_data=FilePrefix(f"__{self._operation.context.rank}_"))

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        return plans

    def write_data(self, plan: Any, planner: Any) -> Any:
        with self._operation.phase("write"):
            return super().write_data(plan, planner)

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        operation, exchange = self._operation, self._operation.exchange
        its, size_bytes = operation.context, self.fs.size_bytes
        sent = (results[0], self.fs.entries(), _durations(operation.phases))
        write_s: dict[int, float] = {}
        with operation.phase("commit"):
            exchange.send("result", sent)
            if exchange.is_coordinator:
                gathered = exchange.gather("result")
                super().finish(metadata, [each[0] for each in gathered])
                write_s = {
                    rank: each[2].get("write", 0.0)
                    for rank, each in zip(exchange.ranks, gathered, strict=True)
                }
                files = {name: e for each in gathered for name, e in each[1].items()}
                manifest = Manifest(
                    step=its.step,
                    world_size=its.world_size,
                    created_at_unix_s=its.created_at_unix_s,
                    reason=its.reason,
                    files={**files, **self.fs.entries()},
                    phases_s={
                        str(rank): each[2]
                        for rank, each in zip(exchange.ranks, gathered, strict=True)
                    },
                )
                commit(self.path, manifest)
                for rank in exchange.ranks[1:]:
                    exchange.send("committed", True, to=rank)
            else:
                exchange.receive("committed")
        path = its.folder / its.name
        report = SaveReport(
            phases=tuple(operation.phases), size_bytes=size_bytes, path=path, write_s=write_s
        )
        setattr(metadata, REPORT, report)


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
            _delay_sigterm(self._sigterm_delay_s)

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def write_data(self, plan: Any, planner: Any) -> Any:  # noqa: ARG002 (DCP's signature)
        from torch.futures import Future

        future: Any = Future()
        future.set_result([])
        return future

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        pass


def _delay_sigterm(delay_s: float) -> None:
    """The alarm ends the process by its default action."""
    if delay_s > 0.0:
        signal.signal(
            signal.SIGTERM, lambda *_: signal.setitimer(signal.ITIMER_REAL, delay_s) and None
        )
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@dataclass(frozen=True)
class FilePrefix:
    """Of the names of one rank's files; as DCP's own."""

    prefix: str


class HashingFileSystem(FileSystem):  # type: ignore[misc]
    """Hashes what is written on its way to the file."""

    def __init__(self) -> None:
        self._hashes: dict[str, HashingFile] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with super().create_stream(path, mode) as stream:
            if mode != "wb":
                yield stream
                return
            hashing = self._hashes[Path(path).name] = HashingFile(stream)
            yield hashing

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self._hashes[Path(new_path).name] = self._hashes.pop(Path(path).name)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self._hashes.values())

    def entries(self) -> dict[str, FileEntry]:
        return {name: file.entry() for name, file in self._hashes.items()}


class HashingFile:
    """A file that is only appended to."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: Any) -> int:
        view = memoryview(content)
        self._digest.update(view)
        self.size_bytes += view.nbytes
        self._file.write(content)
        return view.nbytes

    def entry(self) -> FileEntry:
        return FileEntry(size_bytes=self.size_bytes, sha256=self._digest.hexdigest())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def root_cause(error: BaseException) -> str:
    """Of what DCP raises: the first rank's error without its traceback; and where torch found a
    file shorter than it should be, what the system had said."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, OSError):
        seen = seen.__context__
    return str(seen if seen is not None else error) or type(error).__name__


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
