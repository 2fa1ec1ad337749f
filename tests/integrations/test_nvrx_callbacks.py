"""NVRx's own scripts with its callbacks run with ours after their import line was changed.

They run if ``NVRX_CHECKOUT`` names a checkout of nvidia-resiliency-ext; they are no part of this
project. Besides the import only what a machine without a GPU demands is changed. The rank monitors,
which its launcher starts, are stand-ins: ours have none.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = os.environ.get("NVRX_CHECKOUT", "")
pytestmark = [
    pytest.mark.skipif(
        not CHECKOUT,
        reason="NVRX_CHECKOUT is not set: it would show that NVRx's callback tests pass with ours",
    ),
    pytest.mark.skipif(
        not importlib.util.find_spec("lightning"), reason="needs lightning, as those scripts do"
    ),
]
IMPORT = (
    "from nvidia_resiliency_ext.ptl_resiliency import",
    "from otel_straggler.integrations.lightning import",
)
WITHOUT_GPU = (
    ('accelerator="gpu"', 'accelerator="cpu"'),
    ("accelerator='gpu'", "accelerator='cpu'"),
    ("pytestmark = pytest.mark.skip(", "_ = pytest.mark.skip("),
    ('max_time={"seconds": 4}', 'max_time={"seconds": 20}'),  # in which a report must be due
)
LAUNCHER = {
    "__init__.py": "",
    "ptl_resiliency/__init__.py": "",
    "ptl_resiliency/_utils.py": (
        "import importlib.util\n"
        "def is_module_available(name):\n    return importlib.util.find_spec(name) is not None\n"
    ),
    "fault_tolerance/data.py": 'FT_RANK_MONITOR_IPC_SOCKET_ENV_VAR = "NO_SOCKET"\n',
    "fault_tolerance/__init__.py": (
        "class FaultToleranceConfig: ...\n"
        "class RankMonitorServer:\n"
        "    @classmethod\n"
        "    def run_in_subprocess(cls, **_):\n        return cls()\n"
        "    def terminate(self): ...\n"
        "    def join(self, timeout): ...\n"
    ),
}


@pytest.mark.parametrize(
    ("name", "tests"),
    [("test_straggler_det_callback.py", 2), ("test_ft_callback_hb.py", 7)],
    ids=["stragglers", "fault_tolerance"],
)
def test_the_callback_tests_of_nvrx_pass(name: str, tests: int, tmp_path: Path) -> None:
    script = Path(CHECKOUT) / "tests" / "ptl_resiliency" / "unit" / name
    text = script.read_text()
    assert IMPORT[0] in text, f"{name} no longer imports the callbacks by this line"
    for old, new in (IMPORT, *WITHOUT_GPU):
        text = text.replace(old, new)
    (tmp_path / name).write_text(text)
    for path, source in LAUNCHER.items():
        file = tmp_path / "nvidia_resiliency_ext" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", name],
        cwd=tmp_path,
        env={
            **os.environ,
            "OTEL_STRAGGLER_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_STRAGGLER_EXIT_DEADLINE_S": "0.1",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"{tests} passed" in done.stdout
