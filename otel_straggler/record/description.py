"""Who this rank is, as resource attributes: identity from the start, topology once known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_straggler import semconv
from otel_straggler.config import ClientSettings
from otel_straggler.model.rank import Source
from otel_straggler.record.active import FORM

AttributeValue = str | int | float | bool
Attributes = dict[str, AttributeValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What is known only after model set-up. Empty or absent = not known.

    Attributes:
        role: ranks are compared within a role.
        parallel: (rank, size) by dimension; size None if unknown.
        gpu_uuid, gpu_model, gpu_pci_id, pod: where it runs.
        gpu_tier, gpu_reason: what times it on its GPU, and why not more.
        is_ending: SIGTERM has come, and a handler of the user's own decides what follows.
    """

    role: str = ""
    parallel: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    gpu_uuid: str = ""
    gpu_model: str = ""
    gpu_pci_id: str = ""
    pod: str = ""
    gpu_tier: str = ""
    gpu_reason: str = ""
    is_ending: bool = False

    def attributes(self) -> Attributes:
        """As sent on ``straggler.rank.info`` and on the resource."""
        texts = {
            semconv.GPU_UUID: self.gpu_uuid,
            semconv.GPU_MODEL: self.gpu_model,
            semconv.GPU_PCI_ID: self.gpu_pci_id,
            semconv.POD_NAME: self.pod,
            semconv.GPU_TIMING_TIER: self.gpu_tier,
            semconv.GPU_TIMING_REASON: self.gpu_reason,
        }
        known: Attributes = {str(key): text for key, text in texts.items() if text}
        if self.is_ending:
            known[semconv.RANK_ENDING] = True
        known[semconv.ROLE] = self.role or semconv.DEFAULT_ROLE
        for dimension, (rank, size) in self.parallel.items():
            known[semconv.PARALLEL_RANK[dimension]] = rank
            if size is not None:
                known[semconv.PARALLEL_SIZE[dimension]] = size
        return known

    def merged(self, newer: Topology) -> Topology:
        """This, with what ``newer`` knows put over it."""
        return Topology(
            role=newer.role or self.role,
            parallel={**self.parallel, **newer.parallel},
            gpu_uuid=newer.gpu_uuid or self.gpu_uuid,
            gpu_model=newer.gpu_model or self.gpu_model,
            gpu_pci_id=newer.gpu_pci_id or self.gpu_pci_id,
            pod=newer.pod or self.pod,
        )


def resource_attributes(
    settings: ClientSettings, session_id: str, topology: Topology
) -> Attributes:
    """The resource of every request; the user's own attributes lie under ours."""
    attributes: Attributes = dict(settings.resource)
    instance = f"{settings.run_id}/{settings.attempt}/{settings.group}/{settings.rank}"
    attributes |= {
        semconv.SERVICE_NAME: settings.service_name,
        semconv.SERVICE_INSTANCE_ID: instance,
        semconv.HOST_NAME: settings.node,
        semconv.SESSION_ID: session_id,
        semconv.RECORDER: FORM,
        semconv.RUN_ID: settings.run_id,
        semconv.RUN_ATTEMPT: settings.attempt,
        semconv.GROUP: settings.group,
        semconv.RANK: settings.rank,
    }
    if settings.local_rank >= 0:
        attributes[semconv.LOCAL_RANK] = settings.local_rank
    if settings.world_size > 0:
        attributes[semconv.WORLD_SIZE] = settings.world_size
    if settings.page is not None:
        attributes[semconv.RUN_PAGE] = settings.page
    if settings.team:
        attributes[semconv.TEAM] = settings.team
    return attributes | topology.attributes()


def source_of(settings: ClientSettings, session_id: str, topology: Topology) -> Source:
    """The same identity as the model knows it."""
    return Source(
        run_id=settings.run_id,
        rank=settings.rank,
        job=settings.service_name,
        group=settings.group,
        attempt=settings.attempt,
        node=settings.node,
        session_id=session_id,
        local_rank=settings.local_rank,
        world_size=settings.world_size,
        role=topology.role or semconv.DEFAULT_ROLE,
        device=topology.gpu_uuid,
        device_model=topology.gpu_model,
        parallel=tuple((dimension, rank) for dimension, (rank, _) in topology.parallel.items()),
    )
