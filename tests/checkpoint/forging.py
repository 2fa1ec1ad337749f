"""Checkpoints that somebody else has written into a folder: whole by their manifest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from otel_straggler.checkpoint.folder import MANIFEST
from otel_straggler.checkpoint.manifest import FileEntry, decode_manifest, encode_manifest

METADATA = ".metadata"


class Running:
    """Its pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def touching(marker: Path) -> Running:
    """Its pickle makes a folder."""
    return Running(os.mkdir, str(marker))


def sealed(path: Path) -> Path:
    """Write the manifest again, as whoever can write to the folder may."""
    manifest = decode_manifest((path / MANIFEST).read_bytes())
    files = {
        each.name: FileEntry(
            size_bytes=each.stat().st_size, sha256=hashlib.sha256(each.read_bytes()).hexdigest()
        )
        for each in path.iterdir()
        if each.name != MANIFEST
    }
    (path / MANIFEST).write_bytes(encode_manifest(replace(manifest, files=files)))
    return path


def with_metadata(path: Path, encoded: bytes) -> Path:
    (path / METADATA).write_bytes(encoded)
    return sealed(path)


def edited_metadata(path: Path, edit: Callable[[Any], Any]) -> Path:
    """Args:
    edit: is given DCP's metadata, changes it, or returns something else.
    """
    metadata = pickle.loads((path / METADATA).read_bytes())
    return with_metadata(path, pickle.dumps(edit(metadata) or metadata))


def with_object(path: Path, key: str, encoded: bytes) -> Path:
    """Put bytes in the place of an object that is no tensor."""

    def edit(metadata: Any) -> None:
        [place] = [each for index, each in metadata.storage_data.items() if index.fqn == key]
        shard = path / place.relative_path
        place.offset, place.length = shard.stat().st_size, len(encoded)
        with shard.open("ab") as file:
            file.write(encoded)

    return edited_metadata(path, edit)


def torch_saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def torch_archive(pickled: bytes) -> bytes:
    """As ``torch.save`` writes, with a pickle of another hand."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


def copied(path: Path, folder: Path) -> Path:
    """The whole folder of checkpoints elsewhere; the same checkpoint in it."""
    shutil.copytree(path.parent, folder)
    return folder / path.name


def edited_manifest(path: Path, **fields: Any) -> Path:
    """With a hash of its own that is right, and the signature that it had."""
    content = json.loads((path / MANIFEST).read_bytes())
    content.update(fields)
    content.pop("sha256")
    signature = content.pop("hmac_sha256", None)
    content["sha256"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    if signature is not None:
        content["hmac_sha256"] = signature
    (path / MANIFEST).write_text(json.dumps(content))
    return path
