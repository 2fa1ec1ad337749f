"""Copies a checkpoint from the nodes to persistent storage, in a thread, while training goes on."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from otel_straggler.checkpoint.files import copy_checked, open_to_read
from otel_straggler.checkpoint.folder import (
    check_owner,
    commit,
    read_manifest,
    remove,
    saving_path,
)
from otel_straggler.checkpoint.manifest import METADATA, FileEntry
from otel_straggler.checkpoint.saving import root_cause
from otel_straggler.checkpoint.store import Exchange, RankFailedError
from otel_straggler.checkpoint.writer_process import RunningSave
from otel_straggler.errors import UnavailableError, UsageError


@dataclass(frozen=True, kw_only=True)
class Persisted:
    """A checkpoint that is in persistent storage.

    Attributes:
        start_unix_s, end_unix_s: of the copying.
    """

    path: Path
    start_unix_s: float
    end_unix_s: float


class Persisting:
    """Every rank copies its own files; the first commits once all have.

    Args:
        save: to the nodes, which has ended.
        storage: the persistent folder.
        owner: of its lock.
        problem: why this rank has nothing to copy; the others stop waiting for it.
    """

    def __init__(self, save: RunningSave, storage: Path, owner: str, problem: str = "") -> None:
        self.save = save
        self._storage = storage
        self._owner = owner
        self._problem = problem
        self._result: Persisted | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, name="otel-straggler-checkpoint-persist", daemon=True
        )
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Persisted:
        """Wait for the commit.

        Raises:
            UnavailableError: it was not committed.
        """
        self._thread.join()
        if self._result is None:
            raise UnavailableError(f"persist: {self._error}") from self._error
        return self._result

    def _run(self) -> None:
        its = self.save.context
        try:
            store = its.address.under(f"{its.name}/persist").connect(its.timeout_s)
            deadline_s = time.monotonic() + its.timeout_s
            exchange = Exchange(store, its.rank, its.ranks, deadline_s)
        except Exception as error:  # noqa: BLE001  the training goes on
            self._error = error
            return
        try:
            self._result = self._copy_and_commit(exchange)
        except RankFailedError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001
            self._error = UnavailableError(root_cause(error))
            exchange.give_up(str(self._error))
        if self._error is not None and exchange.is_coordinator:
            with contextlib.suppress(Exception):
                remove(saving_path(self._storage, its.name))

    def _copy_and_commit(self, exchange: Exchange) -> Persisted:
        if self._problem:
            raise UnavailableError(self._problem)
        its, start_unix_s = self.save.context, time.time()
        here = its.folder / its.name
        manifest = read_manifest(here)
        target = saving_path(self._storage, its.name)
        target.mkdir(parents=True, exist_ok=True)
        for name, entry in manifest.files.items():
            is_own = name.startswith(f"__{its.rank}_")
            if is_own or (name == METADATA and exchange.is_coordinator):
                _copy(here / name, target / name, entry)
        exchange.send("persisted", True)
        if exchange.is_coordinator:
            exchange.gather("persisted")
            self._check_owner()
            commit(target, replace(manifest, files=manifest.all_files, elsewhere={}))
            for rank in exchange.ranks[1:]:
                exchange.send("committed", True, to=rank)
        else:
            exchange.receive("committed")
        return Persisted(
            path=self._storage / its.name, start_unix_s=start_unix_s, end_unix_s=time.time()
        )

    def _check_owner(self) -> None:
        try:
            check_owner(self._storage, self._owner)
        except UsageError as error:
            raise UnavailableError(str(error)) from error


def _copy(source: Path, target: Path, entry: FileEntry) -> None:
    with open_to_read(source) as file:
        copy_checked(file, target, entry)
