"""DCP's files: hashed while they are written, read where they are nearest."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.filesystem import FileSystem

from otel_straggler.checkpoint.manifest import FileEntry, Files
from otel_straggler.checkpoint.pacing import CHUNK_BYTES, FLUSH_BYTES, Pacer, begin_flush
from otel_straggler.checkpoint.sources import NearestFiles


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
    """DCP's reader of files, which has each opened by :class:`.NearestFiles`.

    Args:
        path: for messages.
    """

    def __init__(self, nearest: NearestFiles, path: Path) -> None:
        super().__init__(Path(path.name))
        self.fs = _NearestFileSystem(nearest)


class _NearestFileSystem(FileSystem):  # type: ignore[misc]
    def __init__(self, nearest: NearestFiles) -> None:
        self._nearest = nearest

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:  # noqa: ARG002
        with self._nearest.open(Path(path).name) as stream:
            yield stream
