"""Which process a rank of this host is: by its file of stacks, else by what it has reported to
a collector."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_straggler.cli.exchange import DEFAULT_COLLECTOR
from otel_straggler.cli.report_source import LiveRunViews, choose_run
from otel_straggler.cli.text import names_text, printable
from otel_straggler.client.diagnostics.processes import holds_open, started_ticks, user_of
from otel_straggler.client.settings import node_name
from otel_straggler.errors import ConfigError, InputError, UnavailableError
from otel_straggler.model.diagnostics import SUFFIX, StacksHead
from otel_straggler.recordings.diagnostics_files import MAX_FILES, read_stacks_file
from otel_straggler.strict_json import whole_number

EVIDENCE_DIR: Final = "OTEL_STRAGGLER_EVIDENCE_DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A process to inspect.

    Attributes:
        path: its file of stacks; None if it has none.
        head: what it has announced.
    """

    pid: int
    path: Path | None = None
    head: StacksHead = field(default_factory=StacksHead)

    @property
    def rank(self) -> int | None:
        return whole_number(self.head.rank)

    @property
    def name(self) -> str:
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank} ({self.pid})"


def targets_in(folder: Path) -> list[Target]:
    """Living processes of this machine that have a file there, by rank."""
    result = []
    for path in sorted(folder.glob(f"*{SUFFIX}"))[:MAX_FILES]:
        with contextlib.suppress(OSError):
            dumps = read_stacks_file(path)
            head = dumps[0].head if dumps else StacksHead()
            pid = whole_number(head.pid)
            if pid is not None and head.started and started_ticks(pid) == head.started:
                result.append(Target(pid=pid, path=path, head=head))
    return sorted(result, key=lambda target: (target.head.run, target.rank or 0))


def find_targets(
    pid: int | None,
    ranks: tuple[int, ...],
    run_id: str | None,
    folder: Path | None,
    collector: str | None,
) -> list[Target]:
    """By files of stacks, else by what ranks have reported to a collector."""
    known = [] if folder is None or collector is not None else targets_in(folder)
    result = [
        target
        for target in known
        if (pid is None or target.pid == pid)
        and (not ranks or target.rank in ranks)
        and (run_id is None or target.head.run == run_id)
    ]
    if not result and pid is not None and not ranks:
        return [Target(pid=pid)]
    if result:
        return result
    some = ", ".join(target.name for target in known[:20])
    value = ", ".join(map(str, ranks)) if ranks else str(folder or "no folder")
    expected = f"one of: {some}" if some else "files of living ranks of this host"
    remedy = f"Name a folder with --dir or {EVIDENCE_DIR}, a --collector, or a process with --pid."
    try:
        here, why_none = _reported_here(collector or DEFAULT_COLLECTOR, run_id, ranks)
    except UnavailableError as error:
        if collector is not None:
            raise
        raise ConfigError.of("hang stacks", value, expected, f"{remedy} {error}") from error
    if here:
        return here
    if why_none:
        expected = f"{expected} ({why_none})"
    raise ConfigError.of("hang stacks", value, expected, remedy)


def _reported_here(
    collector: str, run_id: str | None, ranks: tuple[int, ...]
) -> tuple[list[Target], str]:
    """Ranks that run here, by a collector; and why there is none.

    Raises:
        ConfigError: it has no such run.
        InputError, UnavailableError: it does not answer as a collector.
    """
    views = LiveRunViews(collector)
    chosen = choose_run(views, run_id)["run_id"]
    first = views.run_view(chosen, None)
    here = node_name(os.environ)
    result, hosts = [], dict[str, None]()
    for group in first["run"]["groups"]:
        is_first = group == first["run"]["group"]
        ranks_of = (first if is_first else views.run_view(chosen, group))["ranks"]
        states = [ranks_of["states"][code] for code in ranks_of["state"]]
        nodes = [ranks_of["nodes"][code] for code in ranks_of["node"]]
        pids = ranks_of.get("pid", [None] * len(nodes))
        hosts |= dict.fromkeys(filter(None, nodes))
        for rank, node, pid, state in zip(ranks_of["rank"], nodes, pids, states, strict=True):
            is_wanted = (not ranks or rank in ranks) and state not in _OVER
            if is_wanted and pid and node == here:
                head = StacksHead(run=chosen, group=group, rank=str(rank), pid=str(pid))
                result.append(Target(pid=pid, head=head))
    where = names_text(hosts, _MAX_HOSTS) or "unknown hosts"
    return result, (
        f"by {printable(views.where)}, the ranks of run {printable(chosen)} that were asked for "
        f"are over, or not on {printable(here)}: it runs on {where}"
    )


_MAX_HOSTS: Final = 5
_OVER: Final = frozenset({"finished", "failed", "ended", "missing"})


def check_rank(target: Target) -> None:
    """Check that a process which a collector has named is that rank: numbers of another container,
    and of a process that has ended, mean another one here.

    Raises:
        InputError: its environment names another rank.
    """
    try:
        content = Path(f"/proc/{target.pid}/environ").read_bytes()
    except OSError:  # of another user: py-spy says so
        return
    named = [entry[5:].decode(errors="replace") for entry in content.split(b"\0")
             if entry.startswith(b"RANK=")]  # fmt: skip
    if target.rank is not None and named not in ([], [str(target.rank)]):
        raise InputError(
            f"process {target.pid} here is rank {printable(named[0])}: the rank runs in another "
            "container, or has ended. Run this where it runs"
        )


def check_origin(target: Target, path: Path) -> None:
    """Check that the process has written the file: anybody may write a file that names a process.

    Raises:
        InputError: it has not, or that cannot be seen.
    """
    if started_ticks(target.pid) != target.head.started:
        raise InputError("it has ended, and its number is another process's")
    file_user = path.lstat().st_uid
    if user_of(target.pid) != file_user or os.geteuid() not in {0, file_user}:
        raise InputError(
            f"{path} belongs to user {file_user}, its process to user {user_of(target.pid)}: "
            "nothing is sent. Run this as the user of the training"
        )
    if not holds_open(target.pid, path):
        raise InputError(
            f"it does not have {path} open, so it has not announced itself there: nothing is sent. "
            "Name it with --pid for py-spy"
        )
