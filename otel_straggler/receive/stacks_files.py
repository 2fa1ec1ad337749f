"""Folders of stacks files -> the newest dump of each rank. Untrusted: every length is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from otel_straggler.model.diagnostics import SUFFIX, StacksDump, StacksHead, parse_dumps

MOST_READ = 8 * 1024 * 1024
MOST_FILES = 100_000
_MOST_RANK_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """What is known of one session of a rank.

    Attributes:
        path: of the file.
        rank: its number.
        head: the newest, of a dump or what announces the file.
        newest: the newest dump with stacks; None if there is none.
        was_asked: somebody asked for stacks, whatever came of it.
        is_silent: what was asked for last did not come.
    """

    path: Path
    rank: int
    head: StacksHead
    newest: StacksDump | None
    was_asked: bool
    is_silent: bool


def read_stacks_folder(folder: Path) -> tuple[list[RankStacks], list[str]]:
    """All ``*.stacks.txt`` of a folder, one session for each rank of a run and group, the one with
    the newest head; and a sentence for every file that is damaged.

    Raises:
        OSError: the folder cannot be read.
    """
    newest: dict[tuple[str, str, int], RankStacks] = {}
    remarks: list[str] = []
    for path in sorted(folder.glob(f"*{SUFFIX}"))[:MOST_FILES]:
        try:
            dumps = read_stacks_file(path)
        except OSError as error:
            remarks.append(f"{path}: it cannot be read ({error.strerror or error})")
            continue
        rank = dumps[0].head.rank if dumps else ""
        if not (rank.isascii() and rank.isdecimal() and len(rank) <= _MOST_RANK_DIGITS):
            told = "it is empty" if not dumps else "it does not say of which rank it is"
            remarks.append(f"{path}: no stacks were read, {told}: its disk was full, or it was cut")
            continue
        found = _summed_up(path, int(rank), dumps)
        head = dumps[-1].head
        key = head.run, head.group, int(rank)
        if key not in newest or newest[key].head.at <= head.at:
            newest[key] = found
    return sorted(newest.values(), key=lambda found: found.rank), remarks


def read_stacks_file(path: Path) -> list[StacksDump]:
    """The dumps of one file, the last 8 MiB of it.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MOST_READ))
        return parse_dumps(file.read(MOST_READ).decode("utf-8", "replace"))


def _summed_up(path: Path, rank: int, dumps: list[StacksDump]) -> RankStacks:
    with_stacks = [dump for dump in dumps if dump.threads]
    return RankStacks(
        path=path,
        rank=rank,
        head=dumps[-1].head,
        newest=with_stacks[-1] if with_stacks else None,
        was_asked=bool(with_stacks) or any(not dump.head.is_announcement for dump in dumps),
        is_silent=not dumps[-1].threads and not dumps[-1].head.is_announcement,
    )
