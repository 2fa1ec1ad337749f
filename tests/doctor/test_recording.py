"""How sections are recorded, and what a GPU tier would find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.client.recording import FORM
from otel_straggler.config import Endpoint
from otel_straggler.doctor import recording
from otel_straggler.doctor.recording import (
    check_exporter,
    check_gpu_timing,
    check_recorder,
    driver_version,
    find_cupti,
    library_folders,
)
from otel_straggler.doctor.versions import Probed, cuda_of_torch
from otel_straggler.otlp.clients.addresses import why_not_native


def test_the_recorder_is_named() -> None:
    """The one that was chosen."""
    assert check_recorder().value == FORM


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("off", "Sections are recorded in Python: OTEL_STRAGGLER_NATIVE is off."),
        ("required", "Sections are recorded natively."),
    ],
)
def test_a_recorder_in_python_says_why(requested: str, expected: str) -> None:
    """In the words of what decides."""
    if requested == "required" and FORM == "python":
        pytest.skip("without the extension this cannot show that the native recorder is named")
    program = "from otel_straggler.doctor.recording import *; print(check_recorder().sentence)"
    env = {**os.environ, "OTEL_STRAGGLER_NATIVE": requested}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == expected


@pytest.mark.parametrize(
    ("why", "compilers", "remedy"),
    [
        ("OTEL_STRAGGLER_NATIVE is off", ["g++"], "unset OTEL_STRAGGLER_NATIVE"),
        ("it cannot be imported (no file)", ["g++"], "pip install --force-reinstall --no-deps"),
        ("it cannot be imported (no file)", [], "apt install g++ && pip install"),
    ],
)
def test_the_doctor_says_how_to_get_the_compiled_part(
    why: str, compilers: list[str], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what is missing: a variable that is set, a build, or a compiler."""
    monkeypatch.setattr("otel_straggler.client.recording.FORM", "python")
    monkeypatch.setattr("otel_straggler.client.recording.WHY_PYTHON", why)
    monkeypatch.setattr("shutil.which", lambda name: name if name in compilers else None)
    assert check_recorder().remedy.startswith(remedy)


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


def test_without_a_driver_nothing_is_tried() -> None:
    """What is asked for in vain is a warning, what nobody asks for is none."""
    finding = check_gpu_timing({}, "", "/opt/libcupti.so.12")
    assert finding.status == "info"
    assert "no NVIDIA driver, CUPTI at /opt/libcupti.so.12" in finding.sentence
    asked = check_gpu_timing({"OTEL_STRAGGLER_GPU_TIMING": "cupti"}, "", "")
    assert (asked.status, asked.value["could"]) == ("warning", "off")
    assert "no NVIDIA driver, no CUPTI" in asked.sentence


@pytest.fixture
def machine(build_fake: Any, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose driver and libcupti are the fake."""
    if FORM == "python":
        pytest.skip("without the extension this cannot show what is tried of CUPTI")
    build_fake(tmp_path, "libcuda.so.1")
    library = build_fake(tmp_path, "libcupti.so.13")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        "OTEL_STRAGGLER_CUPTI": str(library),
    }


def test_a_machine_that_could_time_kernels_says_how_to_switch_it_on(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where auto is off. It says what was tried, and that this shows nothing of sections yet."""
    monkeypatch.setattr(recording, "AUTO_TIER", "off")
    library = machine["OTEL_STRAGGLER_CUPTI"]
    finding = check_gpu_timing(machine, "570.1", library)
    assert finding.status == "info"
    assert finding.remedy == "export OTEL_STRAGGLER_GPU_TIMING=cupti"
    assert finding.sentence.startswith("GPU timing is off (auto, the default)")
    assert f"kernels by CUPTI (tried: {library}, interface 130000)" in finding.sentence
    assert "Only training shows whether" in finding.sentence
    assert {name: finding.value[name] for name in ("could", "library", "interface", "default")} == {
        "could": "cupti",
        "library": library,
        "interface": 130_000,
        "default": "off",
    }
    on = check_gpu_timing({**machine, "OTEL_STRAGGLER_GPU_TIMING": "cupti"}, "570.1", "")
    assert on.status == "ok"


def test_what_auto_times_is_on_by_default(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a machine that cannot do it is a warning with a remedy."""
    monkeypatch.setattr(recording, "AUTO_TIER", "cupti")
    finding = check_gpu_timing(machine, "570.1", machine["OTEL_STRAGGLER_CUPTI"])
    assert (finding.status, finding.value["default"]) == ("ok", "cupti")
    assert finding.sentence.startswith("GPU timing is cupti (auto, the default) once CUDA is in")
    refusing = {**machine, "FAKE_CUPTI_FAIL": "cuptiActivityEnable:35"}
    finding = check_gpu_timing(refusing, "570.1", "")
    assert (finding.status, finding.value["reason"]) == ("warning", "insufficient_privileges")
    assert finding.sentence.startswith("GPU timing would be cupti (auto, the default), but is ")
    assert finding.remedy


@pytest.mark.parametrize(
    ("attribution", "expected"),
    [
        ("works", "It shows which section a kernel was launched in."),
        ("takeover", "Kernels would have no section: another profiler takes what CUPTI gives"),
    ],
)
def test_whether_kernels_have_a_section_is_said(
    machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, attribution: str, expected: str
) -> None:
    """As the process that tried it found."""
    monkeypatch.setattr(recording, "probe", lambda *_: Probed(attribution=attribution))
    finding = check_gpu_timing(machine, "570.1", "")
    assert expected in finding.sentence
    assert finding.value["attribution"] == attribution


def test_a_machine_that_could_not_says_why(machine: dict[str, str]) -> None:
    """As the training process would, with the same remedy."""
    env = {
        **machine,
        "FAKE_CUPTI_FAIL": "cuptiActivityEnable:35",
        "OTEL_STRAGGLER_GPU_TIMING": "cupti",
    }
    finding = check_gpu_timing(env, "570.1", "")
    assert (finding.status, finding.value["reason"]) == ("warning", "insufficient_privileges")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in finding.remedy


def test_a_cupti_that_crashes_takes_only_the_attempt_with_it(
    machine: dict[str, str], tmp_path: Path
) -> None:
    """As 13.2 does where it finds no driver."""
    source = tmp_path / "crash.c"
    source.write_text("__attribute__((constructor)) void die(void) { __builtin_trap(); }\n")
    library = tmp_path / "libcrash.so"
    command = ["g++", "-shared", "-fPIC", "-x", "c", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    finding = check_gpu_timing({**machine, "OTEL_STRAGGLER_CUPTI": str(library)}, "570.1", "")
    assert finding.value["reason"] == "broken_cupti"
    assert "was ended by signal" in finding.sentence


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


@pytest.mark.parametrize(
    ("cuda", "wheel"), [("13.0", "cu13"), ("12.8", "cuda_cupti"), ("", "cuda_cupti")]
)
def test_the_wheel_of_torch_comes_before_an_older_cupti_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str, wheel: str
) -> None:
    """By what torch was built for, before it is loaded: training takes that one."""
    names = {"cu13": "libcupti.so.13", "cuda_cupti": "libcupti.so.12"}
    for inner, name in names.items():
        folder = tmp_path / "nvidia" / inner / "lib"
        folder.mkdir(parents=True)
        (folder / name).touch()
    older = tmp_path / "older"
    older.mkdir()
    (older / "libcupti.so.12").touch()
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"cuda: str | None = {cuda or None!r}\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert cuda_of_torch() == cuda
    found = find_cupti(library_folders({"LD_LIBRARY_PATH": str(older)}, cuda_of_torch()))
    expected = tmp_path / "nvidia" / wheel / "lib" / names[wheel] if cuda else older / names[wheel]
    assert found == str(expected)
    assert "torch" not in sys.modules


def test_nothing_of_cuda_or_torch_is_loaded() -> None:
    """A doctor must not occupy a GPU."""
    code = (
        "import os, sys; from otel_straggler.doctor.recording import check_recording;"
        "list(check_recording(os.environ)); maps = open('/proc/self/maps').read();"
        "sys.exit('torch' in sys.modules or 'libcuda' in maps or 'libcupti' in maps)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
