"""Loading the newest checkpoint that is whole, which all ranks find together."""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from otel_straggler.checkpoint.folder import Checkpoint, list_checkpoints, verify
from otel_straggler.checkpoint.membership import Membership
from otel_straggler.checkpoint.store import Exchange
from otel_straggler.errors import InputError

_LOG = logging.getLogger("otel_straggler")
_OF_RANK: Final = re.compile(r"rank \d+")
_restored = 0


def restore(
    folder: Path, members: Membership, state: Any, step: int | None, timeout_s: float
) -> int | None:
    """See :meth:`.Manager.restore`. Every rank reads its share of the files for their hashes."""
    global _restored  # noqa: PLW0603  all ranks restore in the same order
    _restored += 1
    store = members.address.under(f"restore/{_restored}").connect(timeout_s)
    exchange = Exchange(store, members.rank, members.ranks, time.monotonic() + timeout_s)
    for checkpoint in _candidates(folder, exchange, step):
        problem = verify(checkpoint, members.rank, members.world_size)
        problem = _first_problem(exchange, checkpoint, problem)
        if not problem:
            _load(checkpoint, state, members)
            return checkpoint.step
        if members.is_first:
            _LOG.warning("%s is not restored: %s", checkpoint.path, problem)
    if step is not None:
        raise InputError.of(
            str(folder), step, "the step of a complete checkpoint",
            f"List them: otel-straggler checkpoints list {folder}",
        )  # fmt: skip
    return None


def _candidates(folder: Path, exchange: Exchange, step: int | None) -> list[Checkpoint]:
    """As rank 0 lists them, newest first."""
    if exchange.is_coordinator:
        found = [one for one in list_checkpoints(folder) if step in {None, one.step}]
        for rank in exchange.ranks[1:]:
            exchange.send("candidates", found, to=rank)
        return found
    received: list[Checkpoint] = exchange.receive("candidates")
    return received


def _first_problem(exchange: Exchange, checkpoint: Checkpoint, problem: str) -> str:
    name = f"verified/{checkpoint.path.name}"
    exchange.send(name, problem)
    if not exchange.is_coordinator:
        return str(exchange.receive(name))
    first = next(filter(None, exchange.gather(name)), "")
    for rank in exchange.ranks[1:]:
        exchange.send(name, first, to=rank)
    return first


def _load(checkpoint: Checkpoint, state: Any, members: Membership) -> None:
    from torch.distributed import checkpoint as dcp

    from otel_straggler.checkpoint.saving import root_cause

    content, is_alone = state() if callable(state) else state, not members.has_group
    reader = dcp.FileSystemReader(checkpoint.path)
    is_known = knows_rank(reader.read_metadata().state_dict_metadata, members.rank)
    if not is_known:
        _LOG.warning("%s has no state of its own for rank %d", checkpoint.path, members.rank)
    try:
        with warnings.catch_warnings():
            if is_alone:
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            dcp.load(
                content, storage_reader=dcp.FileSystemReader(checkpoint.path), no_dist=is_alone
            )
    except dcp.api.CheckpointException as error:
        raise InputError.of(
            str(checkpoint.path), root_cause(error), "what the state to restore has",
            "Restore with the model and the optimizer that it was saved with.",
        ) from error  # fmt: skip


def knows_rank(names: Iterable[str], rank: int) -> bool:
    """Whether state of :class:`.PerRank`, if there is any, is there for this rank: not if there
    were fewer ranks, or it had died."""
    of_ranks = {part for name in names for part in name.split(".") if _OF_RANK.fullmatch(part)}
    return not of_ranks or f"rank {rank}" in of_ranks
