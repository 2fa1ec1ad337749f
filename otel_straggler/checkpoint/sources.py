"""Where the files of a checkpoint are: on which nodes, and in persistent storage."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from otel_straggler.checkpoint.files import copy_checked, is_remote, open_to_read
from otel_straggler.checkpoint.folder import FETCHING, Checkpoint
from otel_straggler.checkpoint.manifest import Files, Manifest
from otel_straggler.checkpoint.streams import FileAddress, fetch
from otel_straggler.errors import UnavailableError
from otel_straggler.regular_files import FileLock

LOCAL, PEER, PERSISTENT = "local", "peer", "persistent"
Places = dict[str, tuple[int, ...]]
"""The nodes that have a file, by its name."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A checkpoint, as all nodes and the persistent folder together have it.

    Attributes:
        name: of its folder, everywhere.
        is_persistent: the persistent folder has all files, too.
    """

    name: str
    step: int
    created_at_unix_s: float
    files: Files
    places: Places
    is_persistent: bool = False

    @property
    def missing(self) -> list[str]:
        """Files that no node has."""
        return [name for name in self.files if not self.places.get(name)]

    @property
    def copies(self) -> int:
        """Nodes that have the file that is on the fewest."""
        return min((len(self.places.get(name, ())) for name in self.files), default=0)

    @property
    def problem(self) -> str:
        missing = [] if self.is_persistent else self.missing
        if not missing:
            return ""
        return f"{len(missing)} of its {len(self.files)} files are in no tier as they were written"

    def without(self, bad: Iterable[tuple[int, str]]) -> Candidate:
        """Args:
        bad: node and name of files that are not what was written.
        """
        refused = set(bad)
        places = {
            name: tuple(node for node in nodes if (node, name) not in refused)
            for name, nodes in self.places.items()
        }
        return replace(self, places=places)

    def without_storage(self) -> Candidate:
        """The persistent copy is not what was written."""
        return replace(self, is_persistent=False)


def candidates(
    offers: dict[int, list[Checkpoint]], persistent: list[Checkpoint]
) -> list[Candidate]:
    """All checkpoints, newest first, those that lack files included.

    Args:
        offers: of each node, what its folder lists.
        persistent: what the persistent folder lists.
    """
    manifests: dict[str, Manifest] = {}
    places: dict[str, dict[str, list[int]]] = {}
    for one in persistent:
        if one.manifest is not None and not one.problem:
            manifests[one.path.name] = one.manifest
    whole = set(manifests)
    for node, listed in sorted(offers.items()):
        for one in listed:
            if one.manifest is None:
                continue
            agreed = manifests.setdefault(one.path.name, one.manifest).all_files
            for name, entry in one.manifest.files.items():
                if agreed.get(name) == entry:
                    places.setdefault(one.path.name, {}).setdefault(name, []).append(node)
    found = [
        Candidate(
            name=name,
            step=manifest.step,
            created_at_unix_s=manifest.created_at_unix_s,
            files=manifest.all_files,
            places={file: tuple(nodes) for file, nodes in places.get(name, {}).items()},
            is_persistent=name in whole,
        )
        for name, manifest in manifests.items()
    ]
    return sorted(found, key=lambda each: (each.step, each.created_at_unix_s), reverse=True)


@dataclass
class ReadTotals:
    """What a rank has read of each tier.

    Attributes:
        files, size_bytes: by tier; of a peer or a URL what this rank fetched for its node.
        fetch_s: seconds of fetching, in the time of loading.
    """

    files: dict[str, int] = field(default_factory=dict)
    size_bytes: dict[str, int] = field(default_factory=dict)
    fetch_s: float = 0.0

    def add(self, tier: str, size_bytes: int) -> None:
        self.files[tier] = self.files.get(tier, 0) + 1
        self.size_bytes[tier] = self.size_bytes.get(tier, 0) + size_bytes


class NearestFiles:
    """Opens the files of a checkpoint where they are nearest: this node, a peer, storage.

    Args:
        addresses: of the nodes that send files.
        local_folder: of this node; also for what is fetched, once for all its ranks.
    """

    def __init__(
        self,
        candidate: Candidate,
        node: int,
        addresses: dict[int, FileAddress],
        local_folder: Path,
        storage: Path,
    ) -> None:
        self._candidate = candidate
        self._node = node
        self._addresses = addresses
        self._local_folder = local_folder
        self._storage = storage
        self.totals = ReadTotals()
        self._counted: set[str] = set()

    def open(self, name: str) -> BinaryIO:
        """Raises:
        UnavailableError: no tier has the file any more.
        OSError: it cannot be read.
        """
        its = self._candidate
        nodes = its.places.get(name, ())
        if self._node in nodes:
            self._count(LOCAL, name)
            return open_to_read(self._local_folder / its.name / name)
        if not nodes and not is_remote(self._storage):
            self._count(PERSISTENT, name)
            return open_to_read(self._storage / its.name / name)
        return open_to_read(self._fetched(name, nodes))

    def _fetched(self, name: str, nodes: tuple[int, ...]) -> Path:
        folder = self._local_folder / f"{FETCHING}{self._candidate.name}"
        folder.mkdir(exist_ok=True)
        target = folder / name
        lock = FileLock(folder / f"{name}.lock", is_waiting=True)
        try:
            if not target.exists():
                began_s = time.monotonic()
                self._fetch(name, nodes, target)
                self.totals.fetch_s += time.monotonic() - began_s
        finally:
            lock.release()
        return target

    def _fetch(self, name: str, nodes: tuple[int, ...], target: Path) -> None:
        its, entry = self._candidate, self._candidate.files[name]
        problems = []
        for node in nodes:
            try:
                fetch(self._addresses[node], its.name, name, entry, target)
            except UnavailableError as error:
                problems.append(str(error))
            else:
                self._count(PEER, name)
                return
        if not its.is_persistent:
            raise UnavailableError("; ".join(problems))
        part = target.with_name(f"{name}.part")
        try:
            with open_to_read(self._storage / its.name / name) as source:
                copy_checked(source, part, entry)
        except ValueError as error:
            raise UnavailableError("; ".join([*problems, str(error)])) from error
        part.rename(target)
        self._count(PERSISTENT, name)

    def _count(self, tier: str, name: str) -> None:
        if name not in self._counted:
            self._counted.add(name)
            self.totals.add(tier, self._candidate.files[name].size_bytes)
