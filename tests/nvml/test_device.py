"""Which GPU a rank computes on, as its description tells."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.client.gpu.surroundings import own_gpu
from otel_straggler.client.topology import Topology, TopologyBook

KNOWN = {
    "name": "NVIDIA H200",
    "uuid": "1234",
    "pci_domain_id": 0,
    "pci_bus_id": 0x3B,
    "pci_device_id": 0,
}


class Cuda:
    """As much of ``torch.cuda`` as is asked; fails where it would initialise CUDA."""

    def __init__(self, **properties: Any) -> None:
        self.is_used = self.is_forked = False
        self._properties = properties
        self.asked = 0

    def is_initialized(self) -> bool:
        return self.is_used

    def _is_in_bad_fork(self) -> bool:
        return self.is_forked

    def device_count(self) -> int:
        if not self.is_used or self.is_forked:
            raise LookupError("this would initialise CUDA")
        return 3

    def current_device(self) -> int:
        raise LookupError("that of the thread that asks, not of the one that trains")

    def memory_reserved(self, device: int) -> int:
        return (0, 7_000, 500)[device]

    def get_device_properties(self, device: int) -> Any:
        assert device == 1
        self.asked += 1
        return SimpleNamespace(**self._properties)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda(**KNOWN)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made))  # type: ignore[arg-type]
    return made


def test_a_rank_tells_its_gpu_once_cuda_is_in_use(cuda: Cuda) -> None:
    """Not before: asking would initialise CUDA, and break workers that are forked later."""
    book = TopologyBook()
    book.add(Topology(role="actor"))
    assert book.current == Topology(role="actor")
    cuda.is_used = True
    known = [book.current.attributes() for _ in range(3)][-1]
    assert known == {
        semconv.GPU_UUID: "GPU-1234",
        semconv.GPU_MODEL: "NVIDIA H200",
        semconv.GPU_PCI_ID: "00000000:3B:00.0",
        semconv.ROLE: "actor",
    }
    assert cuda.asked == 1


def test_what_the_user_has_told_goes_first(cuda: Cuda) -> None:
    """``set_topology(gpu_uuid=...)`` is not overwritten."""
    cuda.is_used = True
    book = TopologyBook()
    book.add(Topology(gpu_uuid="GPU-mine", gpu_model="mine"))
    assert book.current.gpu_uuid == "GPU-mine"
    assert book.current.gpu_pci_id == "00000000:3B:00.0"


def test_a_forked_child_and_a_process_without_torch_have_no_gpu(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is imported to find out."""
    cuda.is_used = cuda.is_forked = True
    assert own_gpu() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert own_gpu() is None
    assert "torch" not in sys.modules


def test_an_older_pytorch_tells_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """No UUID before 2.3, no PCI id before 2.7; a MIG device has its own prefix."""
    old = Cuda(name="NVIDIA A100")
    old.is_used = True
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=old))  # type: ignore[arg-type]
    gpu = own_gpu()
    assert gpu is not None
    assert (gpu.uuid, gpu.model, gpu.pci_id) == ("", "NVIDIA A100", "")
    old._properties["uuid"] = "MIG-5"
    gpu = own_gpu()
    assert gpu is not None
    assert gpu.uuid == "MIG-5"


def test_what_pytorch_does_not_tell_the_driver_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The PCI id, by UUID; a driver that knows nothing changes nothing."""
    old = Cuda(name="NVIDIA A100", uuid="1234")
    old.is_used = True
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=old))  # type: ignore[arg-type]
    asked = []

    def driver(uuid: str) -> str:
        asked.append(uuid)
        return "00000000:3B:00.0"

    book = TopologyBook(driver)
    reported = [book.current for _ in range(3)][-1]
    assert (reported.gpu_model, reported.gpu_pci_id) == ("NVIDIA A100", "00000000:3B:00.0")
    assert asked == ["GPU-1234"]
    assert TopologyBook(lambda _: "").current.gpu_pci_id == ""
    assert TopologyBook().current.gpu_uuid == "GPU-1234"


def test_what_is_known_of_the_rank_has_the_gpu(cuda: Cuda) -> None:
    """On ``straggler.rank.info`` and on the resource, from the next heartbeat on."""
    book = TopologyBook()
    book.add(Topology(role="actor"))
    assert book.current == Topology(role="actor")
    cuda.is_used = True
    assert book.current.gpu_model == "NVIDIA H200"
    assert book.current.role == "actor"
    book.reset()
    assert book.current.role == ""
