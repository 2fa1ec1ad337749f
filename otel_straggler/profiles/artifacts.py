"""The files of a profile: their names, which never collide, and what is written to them."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_straggler.model.operator_tables import FLOPS_SUFFIX, STACKS_SUFFIX, TABLE_SUFFIX
from otel_straggler.profiles.recording import Recorded
from otel_straggler.profiles.settings import ProfileSettings
from otel_straggler.regular_files import create_folder, open_regular

_LOG = logging.getLogger("otel_straggler")
_MAX_RUN: Final = 100
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Whose:
    """The rank whose profile it is."""

    run_id: str
    group: str
    rank: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that was written.

    Attributes:
        kind: trace, operators, stacks, or flops.
        sha256: of its content, hexadecimal.
    """

    kind: str
    path: Path
    size_bytes: int
    sha256: str


def name_of(whose: Whose, recorded: Recorded) -> str:
    """Begin of the names of all files of a profile.

    >>> name_of(Whose("my run/7", "", 3, 0), Recorded(None, 10, 12, 3))
    'my-run-7.attempt0.rank3.steps10-12'
    """
    run = re.sub(r"[^\w-]+", "-", whose.run_id)[:_MAX_RUN]
    group = re.sub(r"[^\w-]+", "-", f".{whose.group}") if whose.group else ""
    steps = f"steps{recorded.first_step}-{recorded.last_step}"
    return f"{run}{group}.attempt{whose.attempt}.rank{whose.rank}.{steps}"


def write_all(settings: ProfileSettings, whose: Whose, recorded: Recorded) -> list[Path]:
    """Write the trace, the operators with the memory, and the stacks. A file that cannot be
    written is logged, and the others are written."""
    profiler, name = recorded.profiler, name_of(whose, recorded)
    folder = Path(settings.folder)
    traces, suffix = folder, ".chrome_trace.json"
    if settings.tensorboard:
        traces, suffix = folder / "tensorboard", ".pt.trace.json"
    paths = [
        _written(traces, name, suffix, profiler.export_chrome_trace),
        _written(folder, name, TABLE_SUFFIX, lambda path: _write_list(path, recorded)),
    ]
    if settings.with_stack:
        metric = "self_cuda_time_total" if _has_cuda() else "self_cpu_time_total"
        write = lambda path: profiler.export_stacks(path, metric)  # noqa: E731
        paths.append(_written(folder, name, STACKS_SUFFIX, write))
    return [path for path in paths if path is not None]


def _written(folder: Path, name: str, suffix: str, write: Callable[[str], object]) -> Path | None:
    try:
        path = reserve(folder, name, suffix)
    except OSError as error:
        _LOG.warning("profile: nothing can be written to %s: %s", folder, error)
        return None
    try:
        write(str(path))
    except Exception as error:  # noqa: BLE001  training goes on
        _LOG.warning("profile: %s could not be written: %s", path, error)
        path.unlink(missing_ok=True)
        return None
    return path


def reserve(folder: Path, name: str, suffix: str) -> Path:
    """Create an empty file that nobody has, with a number in its name if the name is taken.

    Raises:
        OSError: it cannot be created.
    """
    create_folder(folder)
    for path in _candidates(folder, name, suffix):
        try:
            os.close(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return path
    raise OSError(f"{folder / name}{suffix} exists 1,000 times")


def _candidates(folder: Path, name: str, suffix: str) -> Iterator[Path]:
    yield folder / f"{name}{suffix}"
    for number in range(2, 1_000):
        yield folder / f"{name}.{number}{suffix}"


def _write_list(path: str, recorded: Recorded) -> None:
    """The table of operators, then the memory, as ``profiler_list.dat`` has them."""
    column = "self_cuda_time_total" if _has_cuda() else "self_cpu_time_total"
    averages = recorded.profiler.key_averages()
    table = averages.table(sort_by=column, row_limit=-1)
    with Path(path).open("w", encoding="utf-8") as file:
        file.write(f"{table}\n{memory_text()}\n")


def memory_text() -> str:
    """What the process has needed so far: of its own GPU, else of the host."""
    if _has_cuda():
        import torch

        reserved = torch.cuda.max_memory_reserved() / 2**20
        return f"Memory requirement: {reserved:.0f} MiB\n{torch.cuda.memory_summary()}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    return f"Memory requirement: {peak_bytes / 2**20:.0f} MiB of the host, at most so far"


def _has_cuda() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available() and torch.cuda.is_initialized())


_KINDS: Final = {
    ".json": "trace",
    STACKS_SUFFIX: "stacks",
    TABLE_SUFFIX: "operators",
    FLOPS_SUFFIX: "flops",
}


def artifact_of(path: Path) -> Artifact:
    """Size and hash of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    kind = next(kind for suffix, kind in _KINDS.items() if path.name.endswith(suffix))
    return Artifact(kind, path, size, digest.hexdigest())
