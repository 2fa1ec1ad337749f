"""`otel-straggler dashboards export` writes the pages wherever the package is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from otel_straggler.dashboards.exported import shipped

from .conftest import ROOT

_WITHOUT_SDK = """
import sys
sys.modules["grafana_foundation_sdk"] = None  # importing it raises
from otel_straggler.cli import main
import otel_straggler
print(otel_straggler.__file__)
sys.exit(main(["dashboards", "export", sys.argv[1]]))
"""


def test_export_from_an_installed_copy_needs_no_sdk(tmp_path: Path) -> None:
    """From a wheel, in a program that cannot import the SDK, all files are written."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "otel_straggler", source / "otel_straggler", ignore=left_out)
    _without_extension(source / "pyproject.toml")
    build = "import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])"
    made = _run([sys.executable, "-c", build, str(tmp_path)], source)
    assert made.returncode == 0, made.stderr[-2_000:]
    installed = tmp_path / "installed"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(installed)
    out = tmp_path / "out"

    ran = _run([sys.executable, "-c", _WITHOUT_SDK, str(out)], installed)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(installed))
    written = {
        path.relative_to(out).as_posix(): path.read_text(encoding="utf-8")
        for path in out.rglob("*")
        if path.is_file()
    }
    assert written == shipped()


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def _without_extension(pyproject: Path) -> None:
    """It is not what is looked at here, and takes long."""
    text = pyproject.read_text(encoding="utf-8")
    begin = text.index("[[tool.setuptools.ext-modules]]")
    end = text.index("[tool.distutils.bdist_wheel]")
    pyproject.write_text(text[:begin] + text[end:], encoding="utf-8")
