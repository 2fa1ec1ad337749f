"""`dashboards export` and `alerts export` write the committed files wherever the package lies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from .conftest import ROOT

_EXPORT = """
import sys
sys.modules["grafana_foundation_sdk"] = None  # importing it raises
# An editable install would find the package of this tree.
sys.meta_path = [f for f in sys.meta_path if "editable" not in getattr(f, "__module__", "")]
from otel_straggler.cli import main
import otel_straggler
print(otel_straggler.__file__)
for name in ("dashboards", "alerts"):
    main([name, "export", f"{sys.argv[1]}/{name}"])
"""


def test_a_checkout_exports_what_is_committed(tmp_path: Path) -> None:
    """Also an editable install, which is a checkout on the path; without the SDK."""
    assert _exported(ROOT, tmp_path) == _committed()


def test_an_installed_copy_exports_what_is_committed(tmp_path: Path) -> None:
    """From a wheel that was built from a source distribution."""
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("otel_straggler", "dashboards", "alerts"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    (source / "cuda_ext").mkdir()
    shutil.copy(ROOT / "cuda_ext" / "build_commands.py", source / "cuda_ext")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    _without_extension(source / "pyproject.toml")
    sdist = _built("sdist", source, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    with zipfile.ZipFile(_built("wheel", unpacked, tmp_path / "wheel")) as wheel:
        wheel.extractall(tmp_path / "installed")
    assert _exported(tmp_path / "installed", tmp_path / "out") == _committed()


def _built(kind: str, source: Path, folder: Path) -> Path:
    code = (
        "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
    )
    folder.mkdir()
    ran = _run([sys.executable, "-c", code, f"build_{kind}", str(folder)], source)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    [built] = folder.iterdir()
    return built


def _exported(package: Path, out: Path) -> dict[str, str]:
    ran = _run([sys.executable, "-c", _EXPORT, str(out)], package)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"{package}/otel_straggler/")
    return _texts(out, out)


def _committed() -> dict[str, str]:
    texts = {**_texts(ROOT / "dashboards", ROOT), **_texts(ROOT / "alerts", ROOT)}
    return {name: text for name, text in texts.items() if not name.startswith("alerts/tests/")}


def _texts(folder: Path, root: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f.relative_to(root).as_posix(): f.read_text(encoding="utf-8") for f in files}


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def _without_extension(pyproject: Path) -> None:
    """Compiling it takes long and is tested elsewhere."""
    text = pyproject.read_text(encoding="utf-8")
    begin = text.index("[[tool.setuptools.ext-modules]]")
    end = text.index("[tool.distutils.bdist_wheel]")
    pyproject.write_text(text[:begin] + text[end:], encoding="utf-8")
