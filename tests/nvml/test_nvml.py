"""What is read of a GPU through NVIDIA's own binding, from a fake library."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from .fake_nvml import FakeDriver, build

pytestmark = pytest.mark.skipif(
    find_spec("pynvml") is None,
    reason="nvidia-ml-py is not installed: it would show what is read of a GPU",
)

OPEN = """
try:
    NvmlSensors("GPU-1234")
except SensorsGoneError:
    pass
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> FakeDriver:
    return FakeDriver(library, tmp_path)


@pytest.mark.parametrize("uuid", ["GPU-1234", "1234"])
def test_the_gpu_is_found_by_the_uuid_of_pytorch(driver: FakeDriver, uuid: str) -> None:
    """Which has no prefix; numbers of devices mean something else to NVML."""
    reported = driver.run(f"print(NvmlSensors({uuid!r}).identity())")
    assert reported == (
        "GpuIdentity(uuid='GPU-1234', model='NVIDIA H200', pci_id='00000000:3B:00.0')"
    )


def test_a_healthy_gpu_says_everything(driver: FakeDriver) -> None:
    """In SI units."""
    reported = driver.run(
        """
sensors = NvmlSensors("GPU-1234")
now = sensors.reading(7)
print(now.at_ns, now.throttle_reasons, now.sm_clock_hz, now.memory_clock_hz)
print(now.power_w, now.energy_j, now.temperature_c, now.memory_temperature_c)
print(dict(now.throttled_ns))
print(sensors.errors())
"""
    )
    assert reported.splitlines() == [
        "7 4 1980000000 3201000000",
        "700.0 5000.0 55 1082",
        "{'power': 1074, 'thermal': 1075, 'sync_boost': 1076, 'board': 1077, 'reliability': 1079}",
        (
            "{'ecc_corrected': 1003, 'ecc_uncorrected': 1004, 'rows_remapped_corrected': 1142, "
            "'rows_remapped_uncorrected': 1143, 'row_remap_pending': 1144, "
            "'row_remap_failed': 1145, 'pcie_replay': 1094}"
        ),
    ]


def test_a_reading_takes_few_calls(driver: FakeDriver) -> None:
    """Fields come together; processes, fans and throughput are never asked for."""
    driver.run('sensors = NvmlSensors("GPU-1234")\nsensors.reading(1)')
    assert driver.calls() == [
        "nvmlInitWithFlags",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetTemperature",
    ]


def test_what_a_gpu_does_not_support_is_not_asked_for_again(driver: FakeDriver) -> None:
    """An old GPU has other ways to the same counters; a virtual one has next to nothing."""
    nothing = {f"field__{n}": None for n in (74, 75, 76, 77, 79, 82, 83, 185, 186)}
    reported = driver.run(
        """
sensors = NvmlSensors("GPU-1234")
for at in range(3):
    now = sensors.reading(at)
print(now.power_w, now.energy_j, now.temperature_c, now.sm_clock_hz, dict(now.throttled_ns))
""",
        **{**nothing, "violation__1": 77, "power": 650_000},
        clock__1=None,
        temperature="!3",
    )
    assert reported == "650.0 None None None {'thermal': 77}"
    calls = driver.calls()
    assert calls.count("nvmlDeviceGetFieldValues") == 1
    assert calls.count("nvmlDeviceGetTemperature") == 1
    assert calls.count("nvmlDeviceGetTotalEnergyConsumption") == 1
    assert calls.count("nvmlDeviceGetViolationStatus") == 5 + 2
    assert calls.count("nvmlDeviceGetPowerUsage") == 3


@pytest.mark.parametrize(
    ("printed", "reported"),
    [
        ({"nvmlInitWithFlags": "!18"}, "restart the node or the container"),
        ({"nvmlInitWithFlags": "!9"}, "the NVIDIA driver is not loaded"),
        ({"nvmlInitWithFlags": "!4"}, "NVIDIA_DRIVER_CAPABILITIES"),
        ({"uuid": "GPU-other"}, "NVML knows no GPU GPU-1234"),
        ({"nvmlDeviceGetFieldValues": "!15"}, "drain the node and reset or replace the GPU"),
        ({"field__75": "!15"}, "nvmlDeviceGetFieldValues(75) gave 15: the GPU has fallen off"),
        ({"clock__1": "!10"}, "the driver did not answer in time"),
        ({"nvmlDeviceGetName": "!999"}, "unexpected; please report it"),
    ],
)
def test_a_refusal_names_its_remedy(
    driver: FakeDriver, printed: dict[str, str], reported: str
) -> None:
    """One sentence, which says what to do."""
    result = driver.run(
        """
try:
    sensors = NvmlSensors("GPU-1234")
    sensors.identity()
    sensors.reading(1)
except SensorsGoneError as error:
    print(error)
""",
        **printed,
    )
    assert result.startswith("NVML")
    assert reported in result


def test_without_the_library_the_remedy_is_told(tmp_path: Path) -> None:
    """A laptop, a login node, a container without the utility capability."""
    reported = FakeDriver(None, tmp_path).run(
        """
try:
    NvmlSensors("GPU-1234")
    print("there is a driver here")
except SensorsGoneError as error:
    print(error)
"""
    )
    if "NVML knows no GPU" in reported:
        pytest.skip("there is an NVIDIA driver here: without one, its absence is told")
    assert "nvmlInit gave 12: libnvidia-ml.so.1 is missing" in reported


def test_nvml_is_shut_down_by_who_has_begun_it(driver: FakeDriver) -> None:
    """Once; not by a forked child, and not where it was refused."""
    driver.run(
        """
sensors = NvmlSensors("GPU-1234")
if os.fork() == 0:
    sensors.close()
    os._exit(0)
os.wait()
sensors.close()
sensors.close()
"""
    )
    assert driver.calls().count("nvmlShutdown") == 1
    driver.run(OPEN, nvmlInitWithFlags="!18")
    assert driver.calls().count("nvmlShutdown") == 1
    driver.run(OPEN, uuid="GPU-other")
    assert driver.calls().count("nvmlShutdown") == 2
