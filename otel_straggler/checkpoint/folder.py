"""A folder of checkpoints: what is in it, what is complete, what may be deleted. Needs no torch.

    DIR/checkpoints.json                      makes it a folder of ours; attempts and run time
    DIR/lock                                  held by the one manager that writes
    DIR/step-120-3f9a1c2b/manifest.json       a checkpoint: bytes and hash of every other file
    DIR/.saving-step-120-3f9a1c2b/            one that is being written
    DIR/.removing-step-100-08c1d2e3/          one that is being deleted

A checkpoint appears under its name by one rename, with its manifest on the disk: it is there or is
not. It disappears the same way.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_straggler.errors import InputError, UsageError
from otel_straggler.regular_files import open_regular

MARKER: Final = "checkpoints.json"
LOCK: Final = "lock"
MANIFEST: Final = "manifest.json"
SAVING, REMOVING = ".saving-", ".removing-"
_VERSION: Final = 1
_NAME: Final = re.compile(r"step-(\d+)-([0-9a-f]{8})")
_CHUNK_BYTES: Final = 4 << 20
_MAX_MANIFEST_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file of a checkpoint as it was written."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What makes a checkpoint complete.

    Attributes:
        files: by name.
        phases_s: seconds of each phase, by rank, then by phase.
        reason: why it was saved: schedule, preemption, request.
    """

    step: int
    world_size: int
    created_at_unix_s: float
    reason: str = "schedule"
    files: dict[str, FileEntry] = field(default_factory=dict)
    phases_s: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint in a folder.

    Attributes:
        problem: why it is not complete; empty if it is.
    """

    step: int
    path: Path
    manifest: Manifest | None
    problem: str = ""


def name_of(step: int, save: str) -> str:
    """The folder name of a checkpoint: the same on all ranks, and no two saves share one.

    Args:
        save: identifies the save; equal on all ranks.
    """
    return f"step-{step}-{hashlib.sha256(save.encode()).hexdigest()[:8]}"


def open_folder(folder: Path) -> None:
    """Make ``folder`` a folder of checkpoints, or check that it is one.

    Raises:
        InputError: it holds something else; nothing is changed.
        OSError: it cannot be created.
    """
    if folder.exists() and (
        not folder.is_dir() or (any(folder.iterdir()) and not _is_ours(folder))
    ):
        _refuse_foreign(folder)
    if not (folder / MARKER).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_history(folder, {"attempts": 0, "clean_ends": 0, "run_s": 0.0})


def check_folder(folder: Path) -> None:
    """Raises:
    InputError: it is no folder of checkpoints.
    """
    if not _is_ours(folder):
        _refuse_foreign(folder)


def read_history(folder: Path) -> dict[str, float]:
    """Attempts, clean ends, and seconds that this folder's run has run."""
    text = (folder / MARKER).read_text("utf-8")
    history: dict[str, float] = json.loads(text)["history"]
    return history


def write_history(folder: Path, history: dict[str, float]) -> None:
    content = {"format": "otel-straggler checkpoints", "version": _VERSION, "history": history}
    temporary = folder / f".{MARKER}.{uuid.uuid4().hex[:8]}"
    write_synced(temporary, json.dumps(content).encode())
    temporary.rename(folder / MARKER)


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """All checkpoints, newest first; files are not read.

    Raises:
        InputError: it is no folder of checkpoints.
    """
    check_folder(folder)
    found = [_read(path) for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=_age, reverse=True)


def verify(checkpoint: Checkpoint, part: int = 0, parts: int = 1) -> str:
    """Read its files and compare sizes and hashes; returns the first problem, or nothing.

    Args:
        part, parts: of every ``parts`` files only one is read; ranks share the work.
    """
    if checkpoint.manifest is None:
        return checkpoint.problem
    for name, entry in sorted(checkpoint.manifest.files.items())[part::parts]:
        problem = _problem_of(checkpoint.path / name, entry)
        if problem:
            return f"{name} {problem}"
    return ""


def commit(saving: Path, manifest: Manifest) -> Path:
    """Write the manifest, and give the folder its name: from now on the checkpoint exists.

    Raises:
        OSError: it cannot be; the folder keeps its temporary name.
    """
    write_synced(saving / MANIFEST, _encode(manifest))
    sync_folder(saving)
    path = saving.with_name(saving.name.removeprefix(SAVING))
    saving.rename(path)
    sync_folder(path.parent)
    return path


def prune(folder: Path, keep: int) -> list[Checkpoint]:
    """Delete all but the newest ``keep`` complete checkpoints, and those older that are not
    complete; returns what was deleted."""
    listed = list_checkpoints(folder)
    complete = [one for one in listed if not one.problem]
    if len(complete) < keep:
        return []
    oldest = _age(complete[keep - 1])
    removed = [one for one in listed if _age(one) < oldest]
    for one in removed:
        _remove(one.path)
    return removed


def remove_leftovers(folder: Path) -> None:
    """Delete what was being written or deleted when a process died. Only for who has the lock."""
    for path in list(folder.iterdir()):
        if path.name.startswith(SAVING):
            _remove(path)
        elif path.name.startswith(REMOVING):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock.

    Raises:
        UsageError: another process has it.
    """
    file = open_regular(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(file, 200, 0).decode("utf-8", "replace")
            raise UsageError.of(
                str(folder), owner, "a folder that nobody else writes to",
                "End the other training, or give this one a folder of its own.",
            ) from None  # fmt: skip
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(file)


def write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Bring the names in it to the disk."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _is_ours(folder: Path) -> bool:
    try:
        content = json.loads((folder / MARKER).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == "otel-straggler checkpoints"


def _refuse_foreign(folder: Path) -> None:
    raise InputError.of(
        str(folder),
        "no such folder" if not folder.exists() else f"a folder without {MARKER} of ours",
        "a folder of checkpoints, or an empty one",
        "Nothing was changed. Name the folder that the manager was given.",
    )


def _age(checkpoint: Checkpoint) -> tuple[int, float]:
    manifest = checkpoint.manifest
    return checkpoint.step, 0.0 if manifest is None else manifest.created_at_unix_s


def _read(path: Path) -> Checkpoint:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    step = int(match[1])
    try:
        manifest = _decode((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        return Checkpoint(step=step, path=path, manifest=None, problem=f"has no {MANIFEST}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"{MANIFEST} is damaged: {error}"
        return Checkpoint(step=step, path=path, manifest=None, problem=problem)
    problem = ""
    for name, entry in sorted(manifest.files.items()):
        problem = problem or _size_problem(path / name, entry, name)
    return Checkpoint(step=step, path=path, manifest=manifest, problem=problem)


def _size_problem(path: Path, entry: FileEntry, name: str) -> str:
    try:
        found = path.lstat()
    except OSError:
        return f"{name} is missing"
    if not stat.S_ISREG(found.st_mode):
        return f"{name} is not a regular file"
    if found.st_size != entry.size_bytes:
        return f"{name} has {found.st_size:,} bytes, not {entry.size_bytes:,}"
    return ""


def _problem_of(path: Path, entry: FileEntry) -> str:
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if size != entry.size_bytes:
        return f"has {size:,} bytes, not {entry.size_bytes:,}"
    return "" if digest.hexdigest() == entry.sha256 else "differs from what was written"


def _remove(path: Path) -> None:
    """By one rename, so that nobody takes a half-deleted checkpoint for one."""
    name = path.name.removeprefix(SAVING)
    removing = path.with_name(f"{REMOVING}{name}-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(removing)
        shutil.rmtree(removing, ignore_errors=True)


def _encode(manifest: Manifest) -> bytes:
    content: dict[str, Any] = {
        "version": _VERSION,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "created_at_unix_s": manifest.created_at_unix_s,
        "reason": manifest.reason,
        "files": {
            name: {"size_bytes": entry.size_bytes, "sha256": entry.sha256}
            for name, entry in sorted(manifest.files.items())
        },
        "phases_s": manifest.phases_s,
    }
    content["sha256"] = _digest(content)
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _decode(encoded: bytes) -> Manifest:
    if len(encoded) > _MAX_MANIFEST_BYTES:
        raise ValueError(f"{len(encoded):,} bytes")
    content = json.loads(encoded)
    if content.pop("sha256") != _digest(content):
        raise ValueError("its own hash differs")
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']!r}; expected {_VERSION}")
    if any("/" in name or name in {"", ".", ".."} for name in content["files"]):
        raise ValueError("a file outside of the checkpoint")
    return Manifest(
        step=content["step"],
        world_size=content["world_size"],
        created_at_unix_s=content["created_at_unix_s"],
        reason=content["reason"],
        files={name: FileEntry(**entry) for name, entry in content["files"].items()},
        phases_s=content["phases_s"],
    )


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
