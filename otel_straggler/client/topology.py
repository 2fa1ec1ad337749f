"""Resource attributes of this rank: identity from the start, topology once known."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_straggler import semconv
from otel_straggler.client.recorder import RecordingSession
from otel_straggler.client.recording import FORM
from otel_straggler.client.worker import Clock
from otel_straggler.config import ClientSettings
from otel_straggler.errors import ConfigError
from otel_straggler.model.rank import Source
from otel_straggler.semconv import AttributeValue

if TYPE_CHECKING:
    from otel_straggler.client.native_recorder import NativeRecorder

Attributes = dict[str, AttributeValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Facts that are known only after model set-up. Empty or absent = not known.

    Attributes:
        role: ranks are compared within a role.
        parallel: (rank, size) by dimension; size None if unknown.
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
        """What ``newer`` knows goes first. For what a user gives, not for ``gpu_tier`` and on."""
        given = ("role", "gpu_uuid", "gpu_model", "gpu_pci_id", "pod")
        texts = {name: getattr(newer, name) or getattr(self, name) for name in given}
        return Topology(parallel={**self.parallel, **newer.parallel}, **texts)


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
        semconv.PROCESS_PID: os.getpid(),
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


@dataclass(frozen=True, slots=True)
class RankContext:
    """The sender of telemetry, and its clock."""

    settings: ClientSettings
    recorder: NativeRecorder
    clock: Clock
    topology: Callable[[], Topology]

    def resource(self, session: RecordingSession | None = None) -> Attributes:
        """Of the current session if left out."""
        session_id = (session or self.recorder.session).session_id
        return resource_attributes(self.settings, session_id, self.topology())


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


Index = int | tuple[int, int]


class TopologyBook:
    """The topology of this rank so far. Replaced as a whole, so reading needs no lock."""

    def __init__(self, ask_driver: Callable[[str], str] | None = None) -> None:
        self._ask_driver = ask_driver
        self.reset()

    def reset(self) -> None:
        self._given = Topology()
        self._gpu: Topology | None = None

    def add(self, newer: Topology) -> None:
        self._given = self._given.merged(newer)

    @property
    def current(self) -> Topology:
        """As given, else the GPU as soon as the training uses CUDA. The driver is asked once
        for what PyTorch does not say."""
        from otel_straggler.client.gpu.surroundings import own_gpu, pci_id_of_driver

        if self._gpu is None and (gpu := own_gpu()) is not None:
            pci_id = gpu.pci_id
            if gpu.uuid and not pci_id:
                pci_id = (self._ask_driver or pci_id_of_driver)(gpu.uuid)
            self._gpu = Topology(gpu_uuid=gpu.uuid, gpu_model=gpu.model, gpu_pci_id=pci_id)
        return self._given if self._gpu is None else self._gpu.merged(self._given)


TOPOLOGY = TopologyBook()


def set_topology(
    *,
    role: str | None = None,
    data: Index | None = None,
    tensor: Index | None = None,
    pipeline: Index | None = None,
    virtual_pipeline: Index | None = None,
    context: Index | None = None,
    expert: Index | None = None,
    gpu_uuid: str | None = None,
    gpu_model: str | None = None,
    gpu_pci_id: str | None = None,
    pod: str | None = None,
) -> None:
    """Describe this rank, once it is known. Later calls add to earlier ones.

    >>> from otel_straggler import set_topology
    >>> set_topology(role="actor", data=(3, 8), pipeline=0)

    Args:
        role: ranks are compared within a role.
        data, tensor, pipeline, virtual_pipeline, context, expert: rank, or (rank, size), in that
            parallel dimension.
        gpu_uuid, gpu_model, gpu_pci_id: of the rank's GPU.
        pod: Kubernetes pod.

    Raises:
        ConfigError: an argument is of the wrong kind.
    """
    dimensions = {
        "data": data,
        "tensor": tensor,
        "pipeline": pipeline,
        "virtual_pipeline": virtual_pipeline,
        "context": context,
        "expert": expert,
    }
    newer = Topology(
        role=_text("role", role),
        parallel={k: _index(k, v) for k, v in dimensions.items() if v is not None},
        gpu_uuid=_text("gpu_uuid", gpu_uuid),
        gpu_model=_text("gpu_model", gpu_model),
        gpu_pci_id=_text("gpu_pci_id", gpu_pci_id),
        pod=_text("pod", pod),
    )
    TOPOLOGY.add(newer)


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise _wrong(name, value, "a text")


def _index(name: str, value: object) -> tuple[int, int | None]:
    if _is_count(value):
        return (value, None)  # type: ignore[return-value]
    if isinstance(value, tuple) and len(value) == 2 and all(map(_is_count, value)):
        rank, size = value
        if rank < size:
            return (rank, size)
    raise _wrong(name, value, "a rank, or (rank, size) with rank < size")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    remedy = "Leave it out if it is not known."
    return ConfigError.of(f"set_topology({name}=...)", value, expected, remedy)
