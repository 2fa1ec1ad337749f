"""Who sends: the identity of one process of a training job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from otel_straggler.semconv import DEFAULT_ROLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One process (session) of one rank, as its telemetry describes it. Empty texts are unknown.

    Attributes:
        run_id: the training run, over all attempts.
        rank: global rank in the group; local_rank: within the node, -1 if unknown.
        job: ``service.name``.
        group: one of several worlds in the job; empty where there is one.
        attempt: restart count of the launcher.
        session_id: new in every process.
        world_size: ranks in the group, 0 if unknown.
        role: ranks are compared within a role.
        device: GPU UUID, the same for all ranks that share the GPU; device_model: of that GPU.
        parallel: pairs of parallel dimension ("data", "tensor", ...) and rank in it.
    """

    run_id: str
    rank: int
    job: str = ""
    group: str = ""
    attempt: int = 0
    node: str = ""
    session_id: str = ""
    local_rank: int = -1
    world_size: int = 0
    role: str = DEFAULT_ROLE
    device: str = ""
    device_model: str = ""
    parallel: tuple[tuple[str, int], ...] = ()

    @property
    def reports_gpu(self) -> bool:
        return bool(self.device or self.device_model)

    @property
    def session(self) -> tuple[str, str]:
        """Distinguishes two processes of one rank."""
        return self.session_id, self.node

    @property
    def key(self) -> str:
        """In reports: ``"3"``, or ``"critic/3"`` within a named group."""
        return f"{self.group}/{self.rank}" if self.group else str(self.rank)


_UNIQUE: Final = ("GPU-", "MIG-")
"""How UUIDs of NVIDIA's driver begin; any other name of a device counts within its node."""


def sharing_a_gpu(devices: Sequence[str], nodes: Sequence[str]) -> list[list[int]]:
    """Ranks of one world that compute on one GPU, as indexes, GPU by GPU; none where each has its
    own. A GPU of which pods of several hosts have time slices is one; an instance of MIG with a
    UUID of its own is a GPU of its own.

    Args:
        devices, nodes: of each rank; empty where unknown.

    >>> sharing_a_gpu(["GPU-a", "GPU-b", "GPU-a", "", ""], ["n1", "n1", "n2", "n1", "n1"])
    [[0, 2]]
    """
    by_device: dict[tuple[str, str], list[int]] = {}
    for index, (device, node) in enumerate(zip(devices, nodes, strict=True)):
        if device:
            where = "" if device.startswith(_UNIQUE) else node
            by_device.setdefault((device, where), []).append(index)
    return [indexes for indexes in by_device.values() if len(indexes) > 1]
