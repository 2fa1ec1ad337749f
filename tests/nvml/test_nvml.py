"""What is read of a GPU through NVIDIA's own binding, from a fake library."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from .fake_nvml import FakeDriver

pytestmark = pytest.mark.skipif(
    find_spec("pynvml") is None,
    reason="nvidia-ml-py is not installed: it would show what is read of a GPU",
)


ASK = 'print(repr(pci_id_of_driver("GPU-1234")))'


def test_the_pci_id_is_found_by_the_uuid_of_pytorch(driver: FakeDriver) -> None:
    """Numbers of devices mean something else to NVML."""
    assert driver.run(ASK) == "'00000000:3B:00.0'"
    assert driver.calls()[:2] == ["nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID"]


@pytest.mark.parametrize(
    ("printed", "shutdowns"),
    [({"nvmlInitWithFlags": "!18"}, 0), ({"uuid": "GPU-other"}, 1)],
)
def test_a_driver_that_refuses_is_left_as_it_was(
    driver: FakeDriver, printed: dict[str, str], shutdowns: int
) -> None:
    """NVML counts who has begun it."""
    assert driver.run(ASK, **printed) == "''"
    assert driver.calls().count("nvmlShutdown") == shutdowns


def test_without_the_library_nothing_is_known(tmp_path: Path) -> None:
    """A laptop, a login node, a container without the utility capability."""
    assert FakeDriver(None, tmp_path).run(ASK) == "''"
