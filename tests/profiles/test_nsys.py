"""Nsight Systems around a training, and sections as NVTX ranges meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import otel_straggler as ots
from otel_straggler.cli import main
from otel_straggler.client.sections import Section
from otel_straggler.profiles.nsys import NVTX_VARIABLE, why_cupti_is_taken
from otel_straggler.profiles.nvtx import NvtxRanges

NSYS = """#!/bin/sh
exec {python} -c 'import json, os, sys
json.dump([os.environ.get("OTEL_STRAGGLER_NVTX"), *sys.argv[1:]], open("{seen}", "w"))' "$@"
"""
"""Stands in for nsys: writes what it was given."""


def test_the_command_is_composed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Options that are not ours are those of nsys; all behind the command is the command's."""
    line = ["profile", "nsys", "--dry-run", "--output", "out", "--gpu-metrics-device=all", "--"]
    assert main([*line, "torchrun", "--nproc-per-node", "4", "train.py", "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        "OTEL_STRAGGLER_NVTX=on nsys profile --trace=cuda,nvtx,osrt --cuda-memory-usage=true "
        "--output=out --gpu-metrics-device=all "
        "torchrun --nproc-per-node 4 train.py --dry-run\n"
    )
    assert main(["profile", "nsys", "--dry-run", "torchrun", "train.py"]) == 0
    assert "--output=nsight_report.%h.%p torchrun train.py\n" in capsys.readouterr().out


def test_without_nsys_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["profile", "nsys", "--", "torchrun", "train.py"]) == 2
    assert "Install Nsight Systems" in capsys.readouterr().err


def test_without_a_command_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "nsys", "--gpu-metrics-device=all"]) == 2
    assert "expected a command" in capsys.readouterr().err


def test_nsys_replaces_the_process_and_ranks_mirror_their_sections(tmp_path: Path) -> None:
    """Its exit code is ours."""
    nsys = tmp_path / "nsys"
    nsys.write_text(NSYS.format(python=sys.executable, seen=tmp_path / "seen.json"))
    nsys.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = [sys.executable, "-m", "otel_straggler.cli", "profile", "nsys", "--", "torchrun", "x.py"]
    assert subprocess.run(line, env=env, timeout=60, check=False).returncode == 0
    switch, verb, *given = json.loads((tmp_path / "seen.json").read_text())
    assert (switch, verb, given[-2:]) == ("on", "profile", ["torchrun", "x.py"])


class FakeNvtx:
    """Remembers ranges; ``is_missing``: as in a torch without CUDA."""

    def __init__(self, *, is_missing: bool = False) -> None:
        self.calls: list[str] = []
        self._is_missing = is_missing

    def range_push(self, name: str) -> None:
        if self._is_missing:
            raise RuntimeError("NVTX functions not installed")
        self.calls.append(f"push {name}")

    def range_pop(self) -> None:
        self.calls.append("pop")

    def range_start(self, name: str) -> str:
        self.calls.append(f"start {name}")
        return name

    def range_end(self, handle: str) -> None:
        self.calls.append(f"end {handle}")


def run_sections() -> None:
    with ots.section("forward"), ots.section("attention").run(tokens=4):
        pass


def test_sections_and_steps_are_ranges_until_it_is_closed() -> None:
    """And sections are exactly what they were before, so nothing is left that could cost."""
    own = {name: value for name, value in vars(Section).items() if name != "__doc__"}
    nvtx = FakeNvtx()
    ranges = NvtxRanges(Section, nvtx)
    ranges.begin_step(3)
    run_sections()
    ranges.begin_step(4)
    ranges.close()
    ranges.close()
    run_sections()
    assert nvtx.calls == [
        "start step 3", "push forward", "push attention", "pop", "pop", "end step 3",
        "start step 4", "end step 4",
    ]  # fmt: skip
    assert {name: value for name, value in vars(Section).items() if name != "__doc__"} == own


def test_a_torch_without_nvtx_is_said_once_and_sections_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nvtx = FakeNvtx(is_missing=True)
    ranges = NvtxRanges(Section, nvtx)
    run_sections()
    run_sections()
    assert caplog.text.count("not mirrored as NVTX ranges") == 1
    assert nvtx.calls == []
    ranges.close()


def test_a_session_mirrors_only_while_nsys_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable that the command sets."""
    mirrored: list[Any] = []
    for switch in ("", "on"):
        monkeypatch.setenv(NVTX_VARIABLE, switch)
        ots.configure(endpoint="http://127.0.0.1:9", run_id="r", rank=0, world_size=1,
                      exit_deadline_s=0.01)  # fmt: skip
        mirrored.append("__enter__" in vars(Section))
        ots.shutdown()
    assert mirrored == [False, True]
    assert "__enter__" not in vars(Section)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({}, ""),
        ({"NSYS_PROFILING_SESSION_ID": "7"}, "Nsight Systems profiles this process"),
        ({"CUDA_INJECTION64_PATH": "/opt/x.so"}, "another tool is injected into CUDA"),
    ],
)
def test_another_user_of_cupti_is_known_by_the_environment(env: dict[str, str], why: str) -> None:
    assert why_cupti_is_taken(env).startswith(why)
    assert bool(why_cupti_is_taken(env)) == bool(why)
