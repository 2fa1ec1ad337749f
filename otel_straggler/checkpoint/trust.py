"""Who may have written a checkpoint: keys that sign manifests, and folders that others change.

A manifest has the hashes of a checkpoint's files. Whoever can write to the folder can write these,
too; with a key that they do not know, what they write is none of ours. Needs no torch.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_straggler.checkpoint.allowed import Allowed
from otel_straggler.checkpoint.files import is_remote
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.regular_files import open_regular
from otel_straggler.semconv import CHECKPOINT_KEY_FILE

_MAX_KEYS: Final = 2
_MIN_KEY: Final = 32
_MAX_FILE_BYTES: Final = 4_096
_OTHERS_READ: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_OTHERS_ENTER: Final = 0o011
_REMEDY: Final = (
    "Make one: (umask 077; openssl rand -hex 32 > manifest.key). Two lines are two keys: the first "
    "signs, both are accepted."
)


class UnsignedError(ValueError):
    """Raised for a manifest that no key which is accepted has signed."""


@dataclass(frozen=True)
class ManifestKeys:
    """Keys of manifests; without any, manifests are neither signed nor refused. Picklable.

    Attributes:
        keys: the first signs, all are accepted.
        source: the file, for messages.
    """

    keys: tuple[bytes, ...] = field(default=(), repr=False)
    source: str = ""

    @classmethod
    def of(cls, path: str | Path | None) -> ManifestKeys:
        """Args:
        path: of the file; default: that of the variable OTEL_STRAGGLER_CHECKPOINT_KEY_FILE.

        Raises:
            ConfigError: it cannot be read, others can read it, or it holds no key.
        """
        named = str(path or os.environ.get(CHECKPOINT_KEY_FILE, ""))
        if not named:
            return cls()
        keys = tuple(line.strip() for line in _read(named).splitlines() if line.strip())
        if not 1 <= len(keys) <= _MAX_KEYS or any(len(key) < _MIN_KEY for key in keys):
            lengths = f"{len(keys)} lines of {', '.join(str(len(key)) for key in keys[:4])} bytes"
            expected = f"one or two lines, each a key of at least {_MIN_KEY} characters"
            raise ConfigError.of(named, lengths if keys else "no line", expected, _REMEDY)
        return cls(keys, named)

    def signature(self, content: bytes) -> str:
        """HMAC-SHA256 by the first key; empty without one."""
        return _hmac(self.keys[0], content) if self.keys else ""

    def check(self, content: bytes, signature: object) -> None:
        """Raises:
        UnsignedError: it is not signed by any of these keys.
        """
        if not self.keys:
            return
        if not isinstance(signature, str) or not signature.isascii():
            raise UnsignedError(
                f"it is not signed, and {self.source} has a key: written without the key, or by "
                "somebody else. To restore it once, leave the key out; what is saved then with "
                "the key is signed"
            )
        if not any(hmac.compare_digest(_hmac(key, content), signature) for key in self.keys):
            raise UnsignedError(
                f"its signature is not by a key of {self.source}: changed, or signed with a key "
                "that was replaced. If it was, put that key into the second line"
            )


@dataclass(frozen=True)
class Trust:
    """What a training takes for its own when it restores.

    Attributes:
        keys: of manifests.
        allowed: classes that objects may be of, besides plain data.
        is_shared: others may change the folders.
    """

    keys: ManifestKeys = field(default_factory=ManifestKeys)
    allowed: Allowed = field(default_factory=Allowed)
    is_shared: bool = False


def check_private(folder: Path) -> None:
    """Compare who else can change the checkpoints of ``folder``; a URL has no modes.

    What is above ``folder`` is not looked at; what is below, only where others get to.

    Raises:
        InputError: others can; it names the path, its mode and owner, and what to do.
        OSError: it cannot be read.
    """
    if is_remote(folder):
        return
    for path, found in _reachable(folder):
        mode = stat.S_IMODE(found.st_mode)
        is_foreign = found.st_uid not in {os.geteuid(), 0} and os.geteuid() != 0
        if mode & _OTHERS_WRITE or is_foreign:
            raise InputError.of(
                str(path), f"mode {mode:04o} of user {found.st_uid}, group {found.st_gid}",
                f"what only user {os.geteuid()} can change, as a training restores what is there",
                f"If these checkpoints are yours: chmod -R go-w {folder}. If a team shares the "
                "folder, and all of it may decide what this training restores: "
                "Manager(..., trust_folder=True), best with manifest_key_file, too.",
            )  # fmt: skip


def _reachable(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The folder, and what others reach in it, but links."""
    found = folder.stat()
    yield folder, found
    if not stat.S_IMODE(found.st_mode) & _OTHERS_ENTER:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _reachable(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path), entry.stat(follow_symlinks=False)


def _read(path: str) -> bytes:
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError.of(
            path, error.strerror or str(error), "a file with a key of manifests", _REMEDY
        ) from None
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS_READ or found.st_uid not in {os.geteuid(), 0}:
        raise ConfigError.of(
            path, f"mode {mode:04o} of user {found.st_uid}",
            f"mode 0600, of user {os.geteuid()}: who reads it can sign",
            f"chmod 600 {path}, and replace the key if others have had it.",
        )  # fmt: skip
    if len(content) > _MAX_FILE_BYTES:
        raise ConfigError.of(path, "more than 4,096 bytes", "one or two keys", _REMEDY)
    return content


def _hmac(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()
