"""A recorded run whose kernels were timed in one step of ten, scored from its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_straggler.cli.score import command as score
from otel_straggler.cli.simulate import command as simulate


@pytest.mark.parametrize("form", ["otlp-proto", "otlp-json"])
def test_a_slow_gpu_in_a_recording_is_named_by_the_clock_of_most_steps(
    tmp_path: Path, form: str
) -> None:
    """Events of nine steps of ten; nobody else is, and no section is left out."""
    file = tmp_path / "run.otlp"
    options = (
        "--layout dp8 --steps 160 --timing asynchronous --gpu-timing cupti --gpu-sample-every 10 "
        f"--gpu-missing 0.01 --fault compute:1.3@rank3:step60 --format {form} -o {file}"
    )
    made = CliRunner().invoke(simulate, options.split())
    assert made.exit_code == 0, made.output
    result = CliRunner().invoke(score, [str(file), "--json"])
    [run] = json.loads(result.stdout)["runs"].values()
    newest = {v["subject_id"]: v for v in run["verdicts"]}
    assert [(v["rank"], v["section"], v["state"], v["evidence"]) for v in newest.values()] == [
        (3, "forward", "confirmed", "events")
    ]
    assert set(run["windows"][-1]["sections"]) == {
        "data_loading", "forward", "backward", "gradient_sync", "optimizer"
    }  # fmt: skip
