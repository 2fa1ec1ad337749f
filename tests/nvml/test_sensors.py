"""The sensors of a GPU through NVIDIA's own binding, from a fake library."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from .fake_nvml import FakeDriver

pytestmark = pytest.mark.skipif(
    find_spec("pynvml") is None,
    reason="nvidia-ml-py is not installed: it would show what is read of a GPU",
)
READ = """
import json
from otel_straggler.client.gpu.nvml import NvmlSensors, SensorsGoneError
try:
    sensors = NvmlSensors("1234")
    for _ in range({times}):
        read = list(sensors.read())
    sensors.close()
    print(json.dumps([[m.name, *own.values(), value] for m, own, value in read]))
except SensorsGoneError as error:
    print(json.dumps(str(error)))
"""


def read(driver: FakeDriver, times: int = 1, **printed: object) -> dict[tuple[str, ...], float]:
    answer = json.loads(driver.run(READ.format(times=times), **printed))
    return {tuple(names): value for *names, value in answer}


def test_a_healthy_gpu_is_read_in_the_units_of_the_metrics(driver: FakeDriver) -> None:
    """NVML has MHz, mW, mJ, and nanoseconds."""
    found = read(driver)
    assert found["straggler.gpu.clock", "sm"] == 1980e6
    assert found["straggler.gpu.clock", "memory"] == 3201e6
    assert found["hw.power",] == 700
    assert found["hw.energy",] == 5000
    assert found["hw.temperature", "gpu"] == 55
    assert found["hw.temperature", "memory"] == 1082
    assert found["straggler.gpu.throttled", "thermal"] == pytest.approx(1075e-9)
    assert found["hw.errors", "ecc_uncorrected"] == 1004
    assert ("hw.errors", "nvlink_crc") not in found
    assert driver.calls()[-1] == "nvmlShutdown"


def test_an_xid_is_counted_by_its_number(driver: FakeDriver) -> None:
    """At most a hundred a reading: the fake has one whenever it is asked."""
    found = read(driver, xid=79)
    assert found["hw.errors", "xid_79"] == 100


def test_what_a_gpu_does_not_have_is_asked_for_once(driver: FakeDriver) -> None:
    """Older and smaller GPUs lack most of it; the rest is read all the same."""
    found = read(driver, 3, clock__1=None, temperature=None)
    assert ("straggler.gpu.clock", "sm") not in found
    assert ("hw.temperature", "gpu") not in found
    assert found["straggler.gpu.clock", "memory"] == 3201e6
    assert driver.calls().count("nvmlDeviceGetTemperature") == 1
    assert driver.calls().count("nvmlDeviceGetClockInfo") == 1 + 3


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ({"nvmlInitWithFlags": "!9"}, "the NVIDIA driver is not loaded"),
        ({"uuid": "GPU-other"}, "NVML knows no GPU 1234"),
        ({"clock__1": "!15"}, "fallen off the bus; drain the node"),
        ({"field__74": "!16"}, "needs a reset"),
        ({"nvmlEventSetWait_v2": "!15"}, "fallen off the bus"),
    ],
)
def test_a_gpu_that_is_gone_says_what_to_do(
    driver: FakeDriver, printed: dict[str, object], expected: str
) -> None:
    assert expected in json.loads(driver.run(READ.format(times=1), **printed))


def test_without_a_driver_the_remedy_is_said(tmp_path: Path) -> None:
    """A container without the utility capability."""
    answer = json.loads(FakeDriver(None, tmp_path).run(READ.format(times=1)))
    assert "NVIDIA_DRIVER_CAPABILITIES" in answer
