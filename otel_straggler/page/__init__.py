"""The live page's files: HTML, CSS, JavaScript, pictures. They are package data, read once.

A name is the path below ``static`` with ``/`` between its parts: ``index.html``, ``js/main.js``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # it is elsewhere before Python 3.11
    from importlib.abc import Traversable

MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
}
"""By what a file's name ends with; files that end otherwise are not served."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page; ``etag`` is quoted, and changes with the content."""

    content: bytes
    media_type: str
    etag: str


def asset(name: str) -> Asset | None:
    """A file by its name; None if there is none. Nothing but these files can be had."""
    return _all().get(name)


def names() -> tuple[str, ...]:
    """All files, sorted."""
    return tuple(_all())


@lru_cache(maxsize=1)
def _all() -> dict[str, Asset]:
    return dict(sorted(_read(files(__package__) / "static", "")))


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
            continue
        media_type = MEDIA_TYPES.get(name.rpartition(".")[2])
        if media_type is not None:
            content = entry.read_bytes()
            digest = hashlib.blake2b(content, digest_size=12).hexdigest()
            yield name, Asset(content, media_type, f'"{digest}"')
