"""The manifest of a checkpoint: what makes it complete. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from otel_straggler.checkpoint.trust import ManifestKeys

_VERSION: Final = 1
_MAX_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file of a checkpoint as it was written."""

    size_bytes: int
    sha256: str


Files = dict[str, FileEntry]
"""By name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What makes a checkpoint complete.

    Attributes:
        files: in the folder of the manifest, by name.
        elsewhere: files of the same checkpoint that are in the folders of other nodes.
        phases_s: seconds of each phase, by rank, then by phase.
        reason: why it was saved: schedule, preemption, request.
        needs: classes that must be allowed to restore it, with the key of an object of each.
    """

    step: int
    world_size: int
    created_at_unix_s: float
    reason: str = "schedule"
    files: Files = field(default_factory=dict)
    elsewhere: Files = field(default_factory=dict)
    phases_s: dict[str, dict[str, float]] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Of the files in the folder of the manifest."""
        return sum(entry.size_bytes for entry in self.files.values())

    @property
    def all_files(self) -> Files:
        return {**self.elsewhere, **self.files}


def encode_manifest(manifest: Manifest, keys: ManifestKeys | None = None) -> bytes:
    """Args:
    keys: sign it with the first of these.
    """
    content: dict[str, Any] = {
        "version": _VERSION,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "created_at_unix_s": manifest.created_at_unix_s,
        "reason": manifest.reason,
        "files": _encoded_files(manifest.files),
        "elsewhere": _encoded_files(manifest.elsewhere),
        "phases_s": manifest.phases_s,
        "needs": manifest.needs,
    }
    content["sha256"] = _digest(content)
    if keys is not None and keys.keys:
        content["hmac_sha256"] = keys.signature(_canonical(content))
    return json.dumps(content, indent=1, sort_keys=True).encode()


def decode_manifest(encoded: bytes, keys: ManifestKeys | None = None) -> Manifest:
    """Args:
    keys: refuse it if none of these has signed it.

    Raises:
        ValueError, KeyError, TypeError: it is damaged, of another version, or not signed.
    """
    if len(encoded) > _MAX_BYTES:
        raise ValueError(f"{len(encoded):,} bytes")
    content = json.loads(encoded)
    signature = content.pop("hmac_sha256", None)
    if keys is not None:
        keys.check(_canonical(content), signature)
    if content.pop("sha256") != _digest(content):
        raise ValueError("its own hash differs")
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']!r}; expected {_VERSION}")
    return Manifest(
        step=content["step"],
        world_size=content["world_size"],
        created_at_unix_s=content["created_at_unix_s"],
        reason=content["reason"],
        files=_decoded_files(content["files"]),
        elsewhere=_decoded_files(content.get("elsewhere", {})),
        phases_s=content["phases_s"],
        needs=_texts(content.get("needs", {})),
    )


def _encoded_files(files: Files) -> dict[str, dict[str, Any]]:
    return {
        name: {"size_bytes": entry.size_bytes, "sha256": entry.sha256}
        for name, entry in sorted(files.items())
    }


def _decoded_files(files: dict[str, Any]) -> Files:
    if any("/" in name or name in {"", ".", ".."} for name in files):
        raise ValueError("a file outside of the checkpoint")
    return {name: FileEntry(**entry) for name, entry in files.items()}


def _texts(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise TypeError("needs are no texts")
    return found


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
