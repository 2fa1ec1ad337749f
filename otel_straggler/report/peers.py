"""The ranks that a report compares, and their collectives.

Every call is a collective: all ranks of the group make it, in the same order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from otel_straggler.errors import UsageError
from otel_straggler.model.observation import Floats


class Peers:
    """A group of ranks; this class: one rank without a process group.

    Attributes:
        ranks: global ranks, in the order of the group.
        rank: this one.
        collectives: calls so far.
    """

    def __init__(self, rank: int, ranks: tuple[int, ...] | None = None) -> None:
        self.rank = rank
        self.ranks = (rank,) if ranks is None else ranks
        self.collectives = 0

    @property
    def is_first(self) -> bool:
        """Whether this rank gathers."""
        return self.rank == self.ranks[0]

    def minimum(self, values: Floats) -> Floats:
        """Element by element over all ranks."""
        return values

    def gather(self, values: Floats) -> list[Floats] | None:
        """The arrays of all ranks on the first, in the order of the group; None on the others."""
        return [values]

    def exchange(self, message: bytes, longest: int) -> list[bytes]:  # noqa: ARG002
        """Give every rank the messages of all, none longer than ``longest``."""
        return [message]


class TorchPeers(Peers):
    """Ranks of a ``torch.distributed`` process group, on the device its backend needs.

    Ranks outside of the group are never waited for. Each call lasts at most the group's own
    timeout. The group is held weakly: ``destroy_process_group`` ends a group's threads when the
    last reference goes, and a thread that outlives it may abort the process at its exit.

    Args:
        group: None for the default group.

    Raises: UsageError: this rank is not in the group, or it is not a process group.
    """

    def __init__(self, group: Any = None) -> None:
        import torch
        from torch import distributed as dist

        self._torch = torch
        self._dist = dist
        group = dist.group.WORLD if group is None else group
        ranks = _global_ranks(dist, group)
        super().__init__(dist.get_rank(), ranks)
        if self.rank not in self.ranks:
            raise UsageError.of(
                "process_group",
                f"a group of ranks {list(self.ranks)}",
                f"a group with this rank, {self.rank}",
                "Give every rank the group that it belongs to.",
            )
        self._group = weakly(group)
        self.device = _device(torch, dist, group)

    @property
    def group(self) -> Any:
        """Raises: UsageError: the group was destroyed."""
        group = self._group()
        if group is None:
            raise destroyed_group()
        return group

    def is_of(self, group: Any) -> bool:
        """Whether these are the ranks of ``group``."""
        return self._group() is group

    def minimum(self, values: Floats) -> Floats:
        shared = self._tensor(values)
        self._dist.all_reduce(shared, op=self._dist.ReduceOp.MIN, group=self.group)
        self.collectives += 1
        return self._array(shared)

    def gather(self, values: Floats) -> list[Floats] | None:
        own = self._tensor(values)
        parts = [self._torch.empty_like(own) for _ in self.ranks] if self.is_first else None
        self._dist.gather(own, parts, dst=self.ranks[0], group=self.group)
        self.collectives += 1
        return None if parts is None else [self._array(part) for part in parts]

    def exchange(self, message: bytes, longest: int) -> list[bytes]:
        own = self._torch.zeros(longest, dtype=self._torch.uint8)
        own[: len(message)] = self._torch.frombuffer(bytearray(message or b"\0"), dtype=own.dtype)[
            : len(message)
        ]
        own = own.to(self.device)
        parts = [self._torch.empty_like(own) for _ in self.ranks]
        self._dist.all_gather(parts, own, group=self.group)
        self.collectives += 1
        return [part.cpu().numpy().tobytes().rstrip(b"\0") for part in parts]

    def _tensor(self, values: Floats) -> Any:
        return self._torch.from_numpy(np.array(values)).to(self.device)

    def _array(self, tensor: Any) -> Floats:
        array: Floats = tensor.cpu().numpy()
        return array


def weakly(group: Any) -> Callable[[], Any]:
    """A group's weak reference; what is no group is held as it is."""
    try:
        return weakref.ref(group)
    except TypeError:
        return lambda: group


def destroyed_group() -> UsageError:
    return UsageError.of(
        "process_group",
        "a group that was destroyed",
        "a group that still exists",
        "Generate the last report before destroy_process_group().",
    )


def _global_ranks(dist: Any, group: Any) -> tuple[int, ...]:
    try:
        return tuple(dist.get_process_group_ranks(group))
    except (KeyError, ValueError, TypeError, AttributeError):
        pass
    raise UsageError.of(
        "process_group",
        group,
        "a group of torch.distributed that this rank belongs to",
        "Pass what torch.distributed.new_group() gave, or leave it out for the default.",
    )


def _device(torch: Any, dist: Any, group: Any) -> Any:
    """Device of tensors: the CPU if a backend of the group serves it, as in a mixed
    ``cpu:gloo,cuda:nccl`` group; else the current device of the first that is served."""
    served = {
        pair.partition(":")[0]
        for pair in str(dist.get_backend_config(group)).split(",")
        if ":" in pair
    }
    if not served:
        served = {"cuda"} if dist.get_backend(group) == "nccl" else {"cpu"}
    if "cpu" in served:
        return torch.device("cpu")
    kind = min(served)
    module = getattr(torch, kind)
    return torch.device(kind, module.current_device())
