"""JSON in a folder of checkpoints: the manifest that makes one complete, the marker that makes the
folder ours. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from otel_straggler.checkpoint.trust import ManifestKeys

from otel_straggler.model.decoding import read_as
from otel_straggler.strict_json import parse_object

MAX_BYTES: Final = 64 << 20
"""Of a manifest: a hundred bytes a file, a hundred more a rank."""
METADATA: Final = ".metadata"
"""DCP's own file of a checkpoint."""
_VERSION: Final = 1
_MAX_NUMBER: Final = 1 << 62
MAX_ORDER: Final = _MAX_NUMBER - 1
"""The last that is read. What is saved after a checkpoint that claims it has it, too."""
_MAX_NAME: Final = 255


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
        order: one more than of any checkpoint that was in the folder, whatever the clock and the
            step are.
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
    order: int = 0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Makes a folder one of checkpoints.

    Attributes:
        run: that it is of.
        history: attempts, clean ends, and seconds that the run has run.
    """

    run: str
    format: str = "otel-straggler checkpoints"
    version: int = 1
    history: dict[str, float] = field(
        default_factory=lambda: {"attempts": 0.0, "clean_ends": 0.0, "run_s": 0.0}
    )


def encode_marker(marker: Marker) -> bytes:
    return json.dumps(asdict(marker)).encode()


def decode_marker(encoded: bytes) -> Marker:
    """Raises:
    ValueError: it is damaged, or of something else.
    """
    fresh = Marker(run="")
    try:
        marker: Marker = read_as(Marker, parse_object(encoded))
    except TypeError as error:
        raise ValueError(str(error)) from None
    if (marker.format, marker.version) != (fresh.format, fresh.version):
        raise ValueError(f"format {marker.format!r:.100}, version {marker.version!r:.100}")
    if not 0 < len(marker.run) <= _MAX_NAME:
        raise ValueError(f"run {marker.run!r:.100}")
    is_history = marker.history.keys() == fresh.history.keys()
    if not is_history or not all(0 <= each < _MAX_NUMBER for each in marker.history.values()):
        raise ValueError(f"history {marker.history!r:.200}")
    return marker


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
        "order": manifest.order,
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
        UnsignedError: none has.
        ValueError: it is damaged, of another version, or names what no checkpoint has.
    """
    content = parse_object(encoded, MAX_BYTES)
    signature = content.pop("hmac_sha256", None)
    if keys is not None:
        keys.check(_canonical(content), signature)
    if content.pop("sha256", "") != _digest(content):
        raise ValueError("its own hash differs")
    if content.get("version") != _VERSION:
        raise ValueError(f"version {content.get('version')!r:.100}; expected {_VERSION}")
    try:
        manifest: Manifest = read_as(Manifest, content)
    except TypeError as error:
        raise ValueError(str(error)) from None
    problem = _problem_of_numbers(manifest) or _problem_of_files(manifest.all_files)
    if problem:
        raise ValueError(problem)
    return manifest


def _problem_of_numbers(manifest: Manifest) -> str:
    bounds = {"step": 0, "world_size": 1, "order": 0, "created_at_unix_s": 0}
    for name, minimum in bounds.items():
        value = getattr(manifest, name)
        if not minimum <= value < _MAX_NUMBER:
            return f"{name} is {value!r:.100}; expected a number from {minimum}"
    for rank, phases in manifest.phases_s.items():
        for name, value in phases.items():
            if not 0 <= value < _MAX_NUMBER:
                return f"phases_s of rank {rank:.20}: {name:.100} is {value!r:.100} s"
    return ""


def _problem_of_files(files: Files) -> str:
    if METADATA not in files:
        return f"no {METADATA} is among its files"
    for name, entry in files.items():
        if "/" in name or name in {"", ".", ".."}:
            return f"{name!r:.100} is a file outside of the checkpoint"
        if not name.isprintable() or len(name.encode("utf-8", "replace")) > _MAX_NAME:
            return f"{name!r:.100} is no name of a file"
        if not 0 <= entry.size_bytes < _MAX_NUMBER:
            return f"{name} has {entry.size_bytes!r:.100} bytes"
        if not re.fullmatch("[0-9a-f]{64}", entry.sha256):
            return f"{name} has no SHA-256: {entry.sha256!r:.100}"
    return ""


def _encoded_files(files: Files) -> dict[str, dict[str, Any]]:
    return {
        name: {"size_bytes": entry.size_bytes, "sha256": entry.sha256}
        for name, entry in sorted(files.items())
    }


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
