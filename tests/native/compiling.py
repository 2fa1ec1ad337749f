"""Compiles the fakes that stand in for a GPU: each once for all tests, also of other processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "cuda_ext"
KEPT = FOLDER / "build" / "fakes"


def compiled(compiler: str, options: list[str], source: Path, path: Path) -> Path:
    """Put what ``source`` compiles to at ``path``: a copy of its own, since a library that is
    loaded stays, with all that it remembers. Two processes that begin at the same time both compile
    it, and one of the results is kept."""
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{_key(compiler, options, source)}.so"
    if not kept.exists():
        fresh = KEPT / f"{os.getpid()}-{kept.name}"
        subprocess.run([compiler, *options, str(source), "-o", str(fresh)], check=True)
        fresh.replace(kept)
    shutil.copy(kept, path)
    return path


def _key(compiler: str, options: list[str], source: Path) -> str:
    """Another for another compiler, other options, or a change in what may be included."""
    reported = [compiler, str(Path(compiler).stat().st_mtime_ns), *options, source.name]
    files = sorted(path for path in source.parent.iterdir() if path.is_file())
    contents = [content for path in files for content in (path.name.encode(), path.read_bytes())]
    digest = hashlib.blake2b("\0".join(reported).encode(), digest_size=16)
    for content in contents:
        digest.update(content)
    return digest.hexdigest()
