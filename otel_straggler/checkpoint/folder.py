"""A folder of checkpoints: what is in it, what is complete, what may be deleted. Needs no torch.

    DIR/checkpoints.json                      makes it a folder of ours; run, attempts and run time
    DIR/lock                                  held by the one manager that writes
    DIR/step-120-3f9a1c2b/manifest.json       a checkpoint: bytes and hash of every other file
    DIR/.saving-step-120-3f9a1c2b/            one that is being written
    DIR/.removing-step-100-08c1d2e3/          one that is being deleted
    DIR/.fetching-step-120-3f9a1c2b/          files of other tiers, while they are restored

A checkpoint appears under its name by one rename, with its manifest on the disk: it is there or is
not. It disappears the same way. Object stores have no rename: there it is written under its name,
and is complete with its manifest, which is written last.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
import stat
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from otel_straggler.checkpoint.files import (
    is_remote,
    problem_of,
    read_small_file,
    size_problem,
    write_synced,
)
from otel_straggler.checkpoint.manifest import MAX_BYTES as MAX_MANIFEST_BYTES
from otel_straggler.checkpoint.manifest import (
    MAX_ORDER,
    FileEntry,
    Manifest,
    Marker,
    decode_manifest,
    decode_marker,
    encode_manifest,
    encode_marker,
)
from otel_straggler.checkpoint.trust import ManifestKeys, UnsignedError
from otel_straggler.errors import InputError, UsageError
from otel_straggler.regular_files import FileLock, LockedError, create_folder, sync_folder

MARKER: Final = "checkpoints.json"
LOCK: Final = "lock"
MANIFEST: Final = "manifest.json"
SAVING, REMOVING, FETCHING = ".saving-", ".removing-", ".fetching-"
_NAME: Final = re.compile(r"step-([0-9]{1,18})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint in a folder.

    Attributes:
        problem: why it is not complete; empty if it is.
        is_refused: it has no signature that is accepted.
    """

    step: int
    path: Path
    manifest: Manifest | None
    problem: str = ""
    is_refused: bool = False


def name_of(step: int, save: str) -> str:
    """The folder name of a checkpoint: the same on all ranks, and no two saves share one.

    Args:
        save: identifies the save; equal on all ranks.
    """
    return f"step-{step}-{hashlib.sha256(save.encode()).hexdigest()[:8]}"


def open_folder(folder: Path, run: str = "", *, is_shared: bool = False) -> str:
    """Make ``folder`` a folder of checkpoints, or check that it is one.

    Args:
        run: whose checkpoints these must be; any, if empty.
        is_shared: a new one has the mode that the umask gives; else others can do nothing there.

    Returns:
        The run that it belongs to.

    Raises:
        InputError: it holds something else, or checkpoints of another run; nothing is changed.
        OSError: it cannot be created.
    """
    if folder.exists() and (
        not folder.is_dir() or (any(folder.iterdir()) and not _is_ours(folder))
    ):
        _refuse_foreign(folder)
    if not (folder / MARKER).exists():
        if not (is_shared or is_remote(folder)):
            create_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _write_marker(folder, Marker(run=run or uuid.uuid4().hex))
    its = _read_marker(folder).run
    if run and its != run:
        raise InputError.of(
            str(folder), f"checkpoints of another run ({its[:8]})", f"those of run {run[:8]}",
            "Nothing was changed. Delete them, or name another folder.",
        )  # fmt: skip
    return its


def check_folder(folder: Path) -> None:
    """Raises:
    InputError: it is no folder of checkpoints.
    """
    if not _is_ours(folder):
        _refuse_foreign(folder)


def read_history(folder: Path) -> dict[str, float]:
    """Attempts, clean ends, and seconds that this folder's run has run."""
    return _read_marker(folder).history


def write_history(folder: Path, history: dict[str, float]) -> None:
    _write_marker(folder, replace(_read_marker(folder), history=history))


def list_checkpoints(folder: Path, keys: ManifestKeys | None = None) -> list[Checkpoint]:
    """All checkpoints, newest first; files are not read.

    Args:
        keys: what none of these has signed is not complete.

    Raises:
        InputError: it is no folder of checkpoints.
    """
    check_folder(folder)
    found = [_read(path, keys) for path in list(folder.iterdir()) if _NAME.fullmatch(path.name)]
    return sorted(found, key=_age, reverse=True)


def verify(checkpoint: Checkpoint, part: int = 0, parts: int = 1) -> str:
    """Read its files and compare sizes and hashes; returns the first problem, or nothing.

    Args:
        part, parts: of every ``parts`` files only one is read; ranks share the work.
    """
    if checkpoint.manifest is None:
        return checkpoint.problem
    for name, entry in sorted(checkpoint.manifest.files.items())[part::parts]:
        problem = problem_of(checkpoint.path / name, entry)
        if problem:
            return f"{name} {problem}"
    return ""


def saving_path(folder: Path, name: str) -> Path:
    """Where the checkpoint ``name`` is written."""
    return folder / (name if is_remote(folder) else f"{SAVING}{name}")


def commit(saving: Path, manifest: Manifest, keys: ManifestKeys | None = None) -> Path:
    """Write the manifest, and give the folder its name: from now on the checkpoint exists.

    Raises:
        OSError: it cannot be; the folder keeps its temporary name.
    """
    newest = max(_orders(saving.parent, keys), default=0)
    manifest = replace(manifest, order=min(newest + 1, MAX_ORDER))
    write_synced(saving / MANIFEST, encode_manifest(manifest, keys))
    if is_remote(saving):
        return saving
    sync_folder(saving)
    path = saving.with_name(saving.name.removeprefix(SAVING))
    saving.rename(path)
    sync_folder(path.parent)
    return path


def prune(
    folder: Path, keep: int, spare: Collection[str] = (), keys: ManifestKeys | None = None
) -> list[Checkpoint]:
    """Delete all but the ``keep`` complete checkpoints that were made last, and those older that
    are not complete; returns what was deleted.

    By the order of saving: not by time, which a clock that is set changes, and not by step, for a
    training that went back to an earlier step needs what it saves now.

    Args:
        spare: names that are not deleted: what was just saved, and what is still read.
        keys: what none of these has signed is not complete, pushes nothing out, and stays.
    """
    listed = list_checkpoints(folder, keys)
    complete = sorted((one for one in listed if not one.problem), key=_order, reverse=True)
    if len(complete) < keep:
        return []
    kept = complete[:keep]
    oldest, first_step = _order(kept[-1]), min(one.step for one in kept)
    removed = [
        one
        for one in listed
        if one.path.name not in spare
        and not one.is_refused
        and (_order(one) < oldest if one.manifest is not None else one.step < first_step)
    ]
    for one in removed:
        remove(one.path)
    return removed


def remove_leftovers(folder: Path) -> None:
    """Delete what was being written or deleted when a process died. Only for who has the lock."""
    for path in list(folder.iterdir()):
        is_half = is_remote(folder) and _NAME.fullmatch(path.name) and not _has_manifest(path)
        if is_half or path.name.startswith(SAVING):
            remove(path)
        elif path.name.startswith((REMOVING, FETCHING)):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, owner: str = "") -> Iterator[None]:
    """Hold the folder's lock. A URL has none: the last who wrote its name there owns it.

    Args:
        owner: identifies who holds it, for :func:`check_owner`.

    Raises:
        UsageError: another process has it.
    """
    text = f"process {os.getpid()} on {socket.gethostname()} {owner}".rstrip()
    if is_remote(folder):
        (folder / LOCK).write_bytes(text.encode())
        yield
        return
    try:
        lock = FileLock(folder / LOCK, text)
    except LockedError as error:
        _refuse_owner(folder, error.holder)
    try:
        yield
    finally:
        lock.release()


def check_owner(folder: Path, owner: str) -> None:
    """Of a URL; a path has a lock.

    Raises:
        UsageError: another training has begun to write there.
    """
    if is_remote(folder):
        found = read_small_file(folder / LOCK)[:200].decode("utf-8", "replace")
        if not found.endswith(f" {owner}"):
            _refuse_owner(folder, found)


def _read_marker(folder: Path) -> Marker:
    """Raises:
    InputError: it is damaged.
    OSError: there is none, or it is no regular file.
    """
    try:
        return decode_marker(read_small_file(folder / MARKER))
    except ValueError as error:
        raise InputError.of(
            str(folder / MARKER), str(error), "the marker of a folder of checkpoints",
            "Nothing was changed. Restore that file, or name another folder.",
        ) from None  # fmt: skip


def _write_marker(folder: Path, marker: Marker) -> None:
    encoded = encode_marker(marker)
    if is_remote(folder):
        (folder / MARKER).write_bytes(encoded)
        return
    temporary = folder / f".{MARKER}.{uuid.uuid4().hex[:8]}"
    write_synced(temporary, encoded)
    temporary.rename(folder / MARKER)


def _is_ours(folder: Path) -> bool:
    try:
        _read_marker(folder)
    except (OSError, ValueError):
        return False
    return True


def _refuse_owner(folder: Path, owner: str) -> None:
    raise UsageError.of(
        str(folder), owner, "a folder that nobody else writes to",
        "End the other training, or give this one a folder of its own.",
    ) from None  # fmt: skip


def _refuse_foreign(folder: Path) -> None:
    value = f"a folder without {MARKER} of ours" if folder.exists() else "no such folder"
    try:
        _read_marker(folder)
    except InputError as error:
        value = f"{value} ({error})"
    except OSError:
        pass
    raise InputError.of(
        str(folder),
        value,
        "a folder of checkpoints, or an empty one",
        "Nothing was changed. Name the folder that the manager was given.",
    )


def _orders(folder: Path, keys: ManifestKeys | None) -> Iterator[int]:
    """Of the checkpoints that can be read."""
    for path in list(folder.iterdir()):
        if _NAME.fullmatch(path.name):
            with contextlib.suppress(OSError, ValueError):
                yield read_manifest(path, keys).order


def _age(checkpoint: Checkpoint) -> tuple[int, int]:
    return checkpoint.step, _order(checkpoint)[0]


def _order(checkpoint: Checkpoint) -> tuple[int, int]:
    manifest = checkpoint.manifest
    return 0 if manifest is None else manifest.order, checkpoint.step


def _read(path: Path, keys: ManifestKeys | None) -> Checkpoint:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    step = int(match[1])
    try:
        if not is_remote(path) and path.is_symlink():
            raise ValueError("it is in a folder that is a symbolic link")
        manifest = read_manifest(path, keys)
        if manifest.step != step:
            raise ValueError(f"it is that of step {manifest.step}")
    except FileNotFoundError:
        return Checkpoint(step=step, path=path, manifest=None, problem=f"has no {MANIFEST}")
    except UnsignedError as error:
        problem = f"{MANIFEST} is refused: {error}"
        return Checkpoint(step=step, path=path, manifest=None, problem=problem, is_refused=True)
    except (OSError, ValueError) as error:
        problem = f"{MANIFEST} is damaged: {' '.join(str(error).split())}"
        return Checkpoint(step=step, path=path, manifest=None, problem=problem)
    return Checkpoint(
        step=step, path=path, manifest=manifest, problem=_first_problem(path, manifest)
    )


def read_manifest(path: Path, keys: ManifestKeys | None = None) -> Manifest:
    """Of the checkpoint ``path``.

    Raises:
        UnsignedError: none of these keys has signed it.
        ValueError: it is damaged.
        OSError: it cannot be read, or is no regular file.
    """
    return decode_manifest(read_small_file(path / MANIFEST, MAX_MANIFEST_BYTES), keys)


def _first_problem(path: Path, manifest: Manifest) -> str:
    sizes = _remote_sizes(path) if is_remote(path) else None
    for name, entry in sorted(manifest.files.items()):
        if sizes is not None:
            problem = size_problem(sizes[name], entry) if name in sizes else "is missing"
        else:
            problem = _size_problem(path / name, entry)
        if problem:
            return f"{name} {problem}"
    return ""


def _remote_sizes(path: Any) -> dict[str, int]:
    """By one listing."""
    listed = path.fs.ls(path.path, detail=True)
    return {each["name"].rstrip("/").rpartition("/")[2]: each["size"] or 0 for each in listed}


def _has_manifest(path: Path) -> bool:
    return (path / MANIFEST).exists()


def _size_problem(path: Path, entry: FileEntry) -> str:
    try:
        found = path.lstat()
    except OSError:
        return "is missing"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    return size_problem(found.st_size, entry)


def remove(path: Path) -> None:
    """By one rename, so that nobody takes a half-deleted checkpoint for one."""
    if is_remote(path):
        with contextlib.suppress(FileNotFoundError):
            (path / MANIFEST).unlink()
        with contextlib.suppress(FileNotFoundError):
            path.rmdir(recursive=True)  # type: ignore[call-arg]
        return
    name = path.name.removeprefix(SAVING)
    removing = path.with_name(f"{REMOVING}{name}-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(removing)
        shutil.rmtree(removing, ignore_errors=True)
