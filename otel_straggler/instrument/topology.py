"""``set_topology()``: what is known of the rank only after model set-up."""

from __future__ import annotations

from otel_straggler.errors import ConfigError, describe
from otel_straggler.record.description import Topology
from otel_straggler.record.gpu.device import GpuDescription

Index = int | tuple[int, int]


class TopologyBook:
    """What is known of this rank so far. Replaced as a whole, so reading needs no lock."""

    def __init__(self) -> None:
        self._told, self._gpu = Topology(), GpuDescription()

    @property
    def current(self) -> Topology:
        """What was told, and the GPU as soon as the training uses CUDA."""
        return self._gpu.add_to(self._told)

    def add(self, newer: Topology) -> None:
        self._told = self._told.merged(newer)

    def forget(self) -> None:
        self._told, self._gpu = Topology(), GpuDescription()


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
    raise ConfigError(_wrong(name, value, "a text"))


def _index(name: str, value: object) -> tuple[int, int | None]:
    if _is_count(value):
        return (value, None)  # type: ignore[return-value]
    if isinstance(value, tuple) and len(value) == 2 and all(map(_is_count, value)):
        rank, size = value
        if rank < size:
            return (rank, size)
    raise ConfigError(_wrong(name, value, "a rank, or (rank, size) with rank < size"))


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _wrong(name: str, value: object, expected: str) -> str:
    return describe(
        where=f"set_topology({name}=...)",
        value=value,
        expected=expected,
        remedy="Leave it out if it is not known.",
    )
