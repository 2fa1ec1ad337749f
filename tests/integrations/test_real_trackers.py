"""The trackers themselves take the scalars and give them back: TensorBoard, MLflow, W&B, each in a
process of its own, offline."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import json, sys
from otel_straggler.integrations import TrackerScalars
from otel_straggler.report.types import Report

def report(score):
    return Report(rank=0, section_relative_perf_scores={"forward": {0: 1.0, 3: score}})

def log_two(tracker, first_step=10):
    scalars = TrackerScalars(tracker, rank=0)
    scalars.log_report(report(0.5), first_step)
    scalars.log_report(None, first_step + 1)
    scalars.log_report(report(0.75), first_step + 2)

"""


def outcome(package: str, program: str, folder: Path) -> Any:
    """What the program prints as JSON at its end. Without the package: a skip that says what it
    would show, but a failure where all packages must be there."""
    if importlib.util.find_spec(package) is None:
        reason = f"needs {package}; it would show that it takes the scalars"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + program],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "WANDB_MODE": "offline", "WANDB_SILENT": "true",
             "WANDB_DIR": str(folder), "MLFLOW_ALLOW_FILE_STORE": "true",
             "WANDB_CACHE_DIR": str(folder), "WANDB_CONFIG_DIR": str(folder),
             "DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_tensorboard_reads_them_back_from_its_event_file(tmp_path: Path) -> None:
    """By name and step."""
    result = outcome(
        "tensorboard",
        """
import os
from torch.utils.tensorboard import SummaryWriter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
with SummaryWriter("events") as writer:
    log_two(writer)
events = EventAccumulator("events")
events.Reload()
print(json.dumps({
    tag: [[event.step, event.value] for event in events.Scalars(tag)]
    for tag in events.Tags()["scalars"]}))
""",
        tmp_path,
    )
    assert result["straggler/worst_score"] == [[10, 0.5], [12, 0.75]]
    assert result["straggler/worst_rank"] == [[10, 3.0], [12, 3.0]]
    assert "straggler/slowdown" not in result


def test_mlflow_reads_them_back_from_its_store(tmp_path: Path) -> None:
    """Metrics of the run that is open, in the order of their steps."""
    result = outcome(
        "mlflow",
        """
import mlflow, pathlib
mlflow.set_tracking_uri(pathlib.Path("runs").absolute().as_uri())
with mlflow.start_run() as run:
    log_two(mlflow)
client = mlflow.MlflowClient()
print(json.dumps([
    [metric.step, metric.value]
    for metric in client.get_metric_history(run.info.run_id, "straggler/worst_score")]))
""",
        tmp_path,
    )
    assert result == [[10, 0.5], [12, 0.75]]


def test_wandb_keeps_them_in_its_offline_run(tmp_path: Path) -> None:
    """By step, in the file that it would send later."""
    result = outcome(
        "wandb",
        """
import glob, struct, wandb
from wandb.proto import wandb_internal_pb2

def records(data):
    # LevelDB's log: after 7 bytes of W&B's own, blocks of 32 KiB with pieces of records.
    at, piece = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        piece += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(piece)
            piece = b""
            yield record

run = wandb.init(project="test", mode="offline")
log_two(run)
run.finish()
wandb.teardown()  # the process that writes the file ends before it is read
(name,) = glob.glob("wandb/offline-run-*/*.wandb")
steps = []
for record in records(open(name, "rb").read()):
    items = {i.key or ".".join(i.nested_key): i.value_json for i in record.history.item}
    if "straggler/worst_score" in items:
        steps.append([record.history.step.num, float(items["straggler/worst_score"])])
print(json.dumps(steps))
""",
        tmp_path,
    )
    assert result == [[10, 0.5], [12, 0.75]]
