"""One wheel for every Python from 3.10, with its native part; and what is without a compiler."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from environments import PYTHONS, build_wheel, find_python, run

pytestmark = [pytest.mark.neighbours, pytest.mark.timeout(300)]

NATIVE_ALONE = """
import hashlib, sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("otel_straggler._native", sys.argv[1])
native = module_from_spec(spec)
spec.loader.exec_module(native)
native.open_block(None)
native.enable(0, "0" * 16)
with native.SectionTimer("forward", "compute", 1):
    pass
assert native.blake2b(b"a", 16, b"") == hashlib.blake2b(b"a", digest_size=16).digest()
assert len(native.drain()) == native.RECORD_BYTES
assert len(native.Scanner([], (0, 1, 2, 3)).scan(b"")) > 1
"""
LOADERS = {"ld-linux-x86-64", "ld-linux-aarch64"}
WHAT_SHOWS = """
import json, logging, sys
# An editable install would find the extension of the tree where the wheel has none.
sys.meta_path = [f for f in sys.meta_path if "editable" not in getattr(f, "__module__", "")]
import otel_straggler
from otel_straggler.doctor.recording import check_recorder
from otel_straggler.testing import CapturedRequests
lines = []
class Keep(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
logging.getLogger("otel_straggler").addHandler(Keep())
logging.getLogger("otel_straggler").setLevel(logging.INFO)
with CapturedRequests() as sink:
    otel_straggler.configure(endpoint=sink.url)
    with otel_straggler.step(1), otel_straggler.section("forward"):
        pass
    otel_straggler.shutdown()
    [forward] = [span for span in sink.spans() if span.name == "forward"]
print(json.dumps({
    "package": otel_straggler.__file__,
    "log": [line for line in lines if "recorder" in line],
    "doctor": check_recorder().sentence,
    "resource": forward.resource["straggler.recorder"],
}))
"""


@pytest.fixture(scope="module")
def extension(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native part as the wheel has it."""
    folder = tmp_path_factory.mktemp("extension")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract("otel_straggler/_native.abi3.so", folder))


def test_one_wheel_is_for_all_pythons(wheel: Path) -> None:
    """Its name says from which on; types are in it, sources are not."""
    tag = f"cp310-abi3-linux_{platform.machine()}"
    assert wheel.name.endswith(f"-{tag}.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (info,) = (n for n in names if n.endswith(".dist-info/WHEEL"))
        assert re.findall(r"^Tag: (.*)$", archive.read(info).decode(), re.MULTILINE) == [tag]
    assert [n for n in names if n.endswith(".so")] == ["otel_straggler/_native.abi3.so"]
    assert {"otel_straggler/_native.pyi", "otel_straggler/py.typed"} <= set(names)
    assert not [n for n in names if n.endswith((".cpp", ".hpp", ".o"))]


def test_building_leaves_no_folder_behind(wheel: Path) -> None:
    """No `build` next to pyproject.toml, from which a later build would take what is stale."""
    source = wheel.parent / "source"
    assert source.is_dir()
    assert not (source / "build").exists()


def test_only_the_stable_abi_is_used(wheel: Path) -> None:
    """So Pythons that nobody here has can load it too, those to come among them."""
    if importlib.util.find_spec("abi3audit") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "no abi3audit: it would show that only the stable ABI of Python 3.10 is used"
        )
    command = [sys.executable, "-m", "abi3audit", "--strict", "--report", wheel]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (of_wheel,) = json.loads(done.stdout)["specs"].values()
    (audited,) = (each["result"] for each in of_wheel["wheel"])
    assert audited["is_abi3"]
    assert (audited["baseline"], audited["computed"]) == ("3.10", "3.10")
    assert (audited["non_abi3_symbols"], audited["future_abi3_objects"]) == ([], {})


@pytest.mark.parametrize("version", PYTHONS)
def test_the_native_part_loads_and_works(extension: Path, version: str) -> None:
    """It needs nothing but the interpreter: it records, hashes and scans."""
    python = find_python(version)
    if not python:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            f"no Python {version} here: it would show that the one wheel loads there"
        )
    step = run("native alone", [python, "-I", "-W", "error", "-c", NATIVE_ALONE, extension])
    assert (step.code, step.output) == (0, "")


def test_no_library_of_nvidia_is_linked(extension: Path) -> None:
    """So it loads on machines without GPU or driver: the C and C++ run-time libraries are all."""
    done = subprocess.run(["readelf", "-d", extension], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", done.stdout))
    assert "libc" in needed
    assert needed <= {"libc", "libgcc_s", "libm", "libpthread", "libstdc++"} | LOADERS


@dataclass(frozen=True)
class Form:
    """What a process says of how it records."""

    log: str
    doctor: str
    resource: str


NATIVE = Form(
    "sections are recorded by the native recorder and sent by the native exporter",
    "Sections are recorded natively.",
    "native",
)
WHY = "it cannot be imported (No module named 'otel_straggler._native')"
PLAIN = Form(
    f"sections are recorded by the python recorder and sent by the python exporter: {WHY}",
    f"Sections are recorded in Python: {WHY}.",
    "python",
)


_LIBRARY = "build/lib.linux-x86_64-cpython-310/otel_straggler"
LEFT_BEHIND = (
    f"{_LIBRARY}/of_an_earlier_build.py",
    f"{_LIBRARY}/_native.abi3.so",
    "build/lib/otel_straggler/of_an_earlier_build.py",
    "otel_straggler/_native.abi3.so",
)


def form_of(wheel: Path, folder: Path) -> Form:
    """Unpack a wheel, record with it, and see what the log, `doctor` and the resource say."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    env = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WHAT_SHOWS],
        env={**env, "PYTHONPATH": str(folder)},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not [
        line for line in done.stderr.splitlines() if not line.startswith("otel-straggler: run ")
    ]
    printed = json.loads(done.stdout)
    assert Path(printed["package"]).is_relative_to(folder)
    (log,) = printed["log"]
    return Form(log, printed["doctor"], printed["resource"])


def test_the_wheel_records_natively_and_says_so(wheel: Path, tmp_path: Path) -> None:
    """In the log, to `doctor`, and on what is sent."""
    assert form_of(wheel, tmp_path) == NATIVE


def test_without_a_compiler_the_package_is_built_and_works_in_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says why, in the same three places. Nothing of an earlier build gets into it."""
    for variable in ("CC", "CXX"):
        monkeypatch.setenv(variable, "no-such-compiler")
    (tmp_path / "wheel").mkdir()
    wheel = build_wheel(tmp_path / "wheel", left_behind=LEFT_BEHIND)
    with zipfile.ZipFile(wheel) as archive:
        assert not [
            n for n in archive.namelist() if n.endswith(".so") or "of_an_earlier_build" in n
        ]
    build = tmp_path / "wheel" / "source" / "build"
    made = {str(path.relative_to(build.parent)) for path in build.rglob("*") if path.is_file()}
    assert made == set(LEFT_BEHIND[:-1]), "it builds elsewhere"
    assert form_of(wheel, tmp_path / "unpacked") == PLAIN
