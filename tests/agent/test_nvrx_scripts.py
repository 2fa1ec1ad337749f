"""NVRx's own examples of fault tolerance run with ours after their import line was changed.

They run if ``NVRX_CHECKOUT`` names a checkout of nvidia-resiliency-ext; they are no part of this
project.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = os.environ.get("NVRX_CHECKOUT", "")
pytestmark = pytest.mark.skipif(
    not CHECKOUT,
    reason="NVRX_CHECKOUT is not set: it would show that NVRx's examples run with our rank monitor",
)
IMPORT = (
    "import nvidia_resiliency_ext.fault_tolerance as fault_tolerance",
    "from otel_straggler import fault_tolerance",
)
SMALL = [
    "--device=cpu",
    "--hidden=8",
    "--epochs=2",
    "--train_dataset_size=200",
    "--val_dataset_size=40",
]


@pytest.mark.parametrize("api", ["heartbeats", "sections"])
def test_an_example_of_nvrx_runs_and_learns_its_timeouts(
    run_node: Callable[..., Any], tmp_path: Path, api: str
) -> None:
    for path in (Path(CHECKOUT) / "examples" / "fault_tolerance").glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text().replace(*IMPORT))
    sections = dict.fromkeys(("init", "step", "checkpoint"), 60.0)
    with run_node(rank_section_timeouts=sections, timeout_action="terminate") as node:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node=2", f"train_ddp_{api}_api.py", *SMALL]
        command.append(f"--output_dir={tmp_path / 'out'}")
        environment = {**os.environ, **node.variables}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=280)
        assert node.hangs == []
    if api == "sections":
        state = json.loads((tmp_path / "out" / "ft_state.json").read_text())
        learned = state["current_timeouts"]["section"]
        assert set(learned["calculated_sections"]) == {"checkpoint", "step"}
        assert learned["is_out_of_section_calculated"]
