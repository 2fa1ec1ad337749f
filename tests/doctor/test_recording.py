"""How sections are recorded, and what a GPU tier would find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.config import Endpoint
from otel_straggler.doctor.recording import (
    check_exporter,
    check_gpu_timing,
    check_recorder,
    driver_version,
    find_cupti,
    library_folders,
)
from otel_straggler.record.active import FORM
from otel_straggler.transport.native_address import why_not_native


def test_the_recorder_is_named() -> None:
    """The one that was chosen."""
    assert check_recorder().value == FORM


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ("off", "Sections are recorded in Python: OTEL_STRAGGLER_NATIVE is off."),
        ("required", "Sections are recorded natively."),
    ],
)
def test_a_recorder_in_python_says_why(wish: str, expected: str) -> None:
    """In the words of what decides."""
    if wish == "required" and FORM == "python":
        pytest.skip("without the extension this cannot show that the native recorder is named")
    program = "from otel_straggler.doctor.recording import *; print(check_recorder().sentence)"
    env = {**os.environ, "OTEL_STRAGGLER_NATIVE": wish}
    said = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == expected


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"url": "http://c:4318/v1/traces"}, ""),
        ({"url": "https://c:4318/v1/traces"}, "the scheme is https"),
        ({"url": "http://c:4317", "protocol": "grpc"}, "the protocol is grpc"),
        ({"url": "http://c/v1/traces", "compression": "gzip"}, "the compression is gzip"),
        ({"url": "http://me:pw@c/v1/traces"}, "the URL holds a user"),
        (
            {"url": "http://c/v1/traces", "headers": (("a", "b\r\nc: d"),)},
            "cannot be sent as it is",
        ),
        ({"url": "https://c/v1/traces", "is_enabled": False}, ""),
    ],
)
def test_an_exporter_in_python_says_why(given: dict[str, Any], reason: str) -> None:
    """It matters to who wants to know whether a silent rank is dead or held up."""
    finding = check_exporter([Endpoint(**given)])
    if FORM == "python":
        pytest.skip("without the extension this cannot show that the native exporter is named")
    assert finding.value == ("python" if reason else "native")
    assert reason in finding.sentence


def test_a_proxy_needs_the_exporter_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the address is among those that are reached without it."""
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert "proxy" in why_not_native(Endpoint(url="http://c/v1/traces"))
    monkeypatch.setenv("no_proxy", "c")
    assert not why_not_native(Endpoint(url="http://c/v1/traces"))


def test_gpu_timing_is_off_and_says_what_is_there() -> None:
    """So that a report shows whether a later version could measure."""
    finding = check_gpu_timing("550.54", "/opt/libcupti.so.12")
    assert finding.value == {"tier": "off", "driver": "550.54", "cupti": "/opt/libcupti.so.12"}
    assert "driver 550.54, CUPTI at /opt/libcupti.so.12" in finding.sentence
    assert "no NVIDIA driver, no CUPTI" in check_gpu_timing("", "").sentence


def test_the_driver_is_read_from_proc(tmp_path: Path) -> None:
    """As the kernel module says it; a device alone says that there is one."""
    assert driver_version(tmp_path) == ""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert driver_version(tmp_path) == "unknown"
    folder = tmp_path / "proc" / "driver" / "nvidia"
    folder.mkdir(parents=True)
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC\n"
    (folder / "version").write_text(text)
    assert driver_version(tmp_path) == "550.54.15"


def test_cupti_is_found_where_the_loader_would_look(tmp_path: Path) -> None:
    """LD_LIBRARY_PATH, CUDA_HOME, NVIDIA's wheels."""
    (tmp_path / "libcupti.so.12").touch()
    assert find_cupti([tmp_path / "absent", tmp_path]) == str(tmp_path / "libcupti.so.12")
    assert find_cupti([]) == ""
    folders = list(library_folders({"LD_LIBRARY_PATH": "/a:/b", "CUDA_HOME": "/cuda"}))
    assert folders[:3] == [Path("/a"), Path("/b"), Path("/cuda/extras/CUPTI/lib64")]


def test_nothing_of_cuda_or_torch_is_loaded() -> None:
    """A doctor must not occupy a GPU."""
    code = (
        "import os, sys; from otel_straggler.doctor.recording import check_recording;"
        "list(check_recording(os.environ)); maps = open('/proc/self/maps').read();"
        "sys.exit('torch' in sys.modules or 'libcuda' in maps or 'libcupti' in maps)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
