"""DCP's files: hashed while they are written, read where they are nearest."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import StorageMeta

from otel_straggler.checkpoint.allowed import Allowed, load_object
from otel_straggler.checkpoint.manifest import METADATA, FileEntry, Files
from otel_straggler.checkpoint.pacing import CHUNK_BYTES, FLUSH_BYTES, Pacer, begin_flush
from otel_straggler.checkpoint.sources import NearestFiles
from otel_straggler.checkpoint.unpickling import decode_metadata
from otel_straggler.errors import UnavailableError


@dataclass(frozen=True)
class FilePrefix:
    """Of the names of one rank's files; as DCP's own."""

    prefix: str


class HashingFileSystem(FileSystem):  # type: ignore[misc]
    """Hashes what is written on its way to the file, as fast as the pacer lets it."""

    def __init__(self, pacer: Pacer) -> None:
        self.pacer = pacer
        self._hashes: dict[str, HashingFile] = {}

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with super().create_stream(path, mode) as stream:
            if mode != "wb":
                yield stream
                return
            hashing = self._hashes[Path(path).name] = HashingFile(stream, self.pacer)
            yield hashing

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self._hashes[Path(new_path).name] = self._hashes.pop(Path(path).name)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self._hashes.values())

    def entries(self) -> Files:
        return {name: file.entry() for name, file in self._hashes.items()}


class HashingFile:
    """A file that is only appended to."""

    def __init__(self, file: Any, pacer: Pacer) -> None:
        self._file = file
        self._pacer = pacer
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        for begin in range(0, view.nbytes, CHUNK_BYTES):
            self._write_chunk(view[begin : begin + CHUNK_BYTES])
        return view.nbytes

    def _write_chunk(self, chunk: memoryview) -> None:
        self._digest.update(chunk)
        self._file.write(chunk)
        before, self.size_bytes = self.size_bytes, self.size_bytes + chunk.nbytes
        if before // FLUSH_BYTES != self.size_bytes // FLUSH_BYTES:
            begin_flush(self._file.fileno(), self.size_bytes)
        self._pacer.add(chunk.nbytes)

    def entry(self) -> FileEntry:
        return FileEntry(size_bytes=self.size_bytes, sha256=self._digest.hexdigest())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class NearestReader(FileSystemReader):  # type: ignore[misc]
    """DCP's reader of files, which has each opened by :class:`.NearestFiles`, and runs nothing.

    Args:
        path: for messages.
        allowed: what objects that are no tensors may be.
        wait: called once all is read; returns when the other ranks are there, too.
    """

    def __init__(
        self, nearest: NearestFiles, path: Path, allowed: Allowed, wait: Callable[[], object]
    ) -> None:
        super().__init__(Path(path.name))
        self.fs = _NearestFileSystem(nearest)
        self._files = nearest.files
        self._where = str(path)
        self._allowed = allowed
        self._wait = wait
        self._metadata: Any = None

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        """DCP unpickles it, as it is.

        Raises:
            InputError: it is not what DCP writes.
            UnavailableError: it is not what was found and compared with the manifest.
        """
        if self._metadata is None:
            with self.fs.create_stream(METADATA, "rb") as stream:
                encoded = stream.read(self._files[METADATA].size_bytes + 1)
            if hashlib.sha256(encoded).hexdigest() != self._files[METADATA].sha256:
                raise UnavailableError(f"{self._where}: {METADATA} has changed since it was found")
            self._metadata = decode_metadata(encoded, self._files, self._where)
            if self._metadata.storage_meta is None:
                self._metadata.storage_meta = StorageMeta()
            self._metadata.storage_meta.load_id = self.load_id
        return self._metadata

    def read_data(self, plan: Any, planner: Any) -> Any:
        with self._allowed.applied():
            read = super().read_data(plan, planner)
        self._wait()  # what comes next may be collective
        return read


class PlainPlanner(DefaultLoadPlanner):  # type: ignore[misc]
    """DCP's planner, which makes only objects that are allowed.

    Args:
        path: for messages.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._where = str(path)

    def load_bytes(self, read_item: Any, value: Any) -> None:
        """DCP unpickles it, as it is."""
        key = read_item.dest_index.fqn
        found = load_object(value, key, self._where)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[key], found)
        else:
            self.state_dict[key] = found


class _NearestFileSystem(FileSystem):  # type: ignore[misc]
    def __init__(self, nearest: NearestFiles) -> None:
        self._nearest = nearest

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:  # noqa: ARG002
        with self._nearest.open(Path(path).name) as stream:
            yield stream
