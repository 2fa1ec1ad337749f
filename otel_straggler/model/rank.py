"""Who sends: the identity of one process of a training job."""

from __future__ import annotations

from dataclasses import dataclass

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
        device: GPU UUID; device_model: of that GPU.
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
