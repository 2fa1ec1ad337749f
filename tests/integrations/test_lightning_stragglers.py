"""``StragglerDetectionCallback``: parameters, log lines, metrics and the end of a fit."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.detector import Detector
from otel_straggler.report.types import Report

from .lightning_runs import DISTRIBUTIONS, LOGGER, loader, model, needs_lightning, trainer
from .recorded import Recorded

pytestmark = [
    needs_lightning("what the callback logs"),
    pytest.mark.filterwarnings("ignore"),
]
GUIDE: dict[str, Any] = {
    "report_time_interval": 300.0,
    "calc_relative_gpu_perf": True,
    "calc_individual_gpu_perf": True,
    "num_gpu_perf_scores_to_log": 3,
    "gpu_relative_perf_threshold": 0.7,
    "gpu_individual_perf_threshold": 0.7,
    "stop_if_detected": False,
    "logger_name": LOGGER,
}
"""The arguments in NVRx's guide; its code has the number of scores under another name."""
OPENING = "STRAGGLER DETECTION WARNING: "


def callback(**changed: Any) -> Any:
    """None as a value: the argument is left out."""
    from otel_straggler.integrations.lightning import StragglerDetectionCallback

    arguments = {**GUIDE, "report_time_interval": 0.0, **changed}
    given = {name: value for name, value in arguments.items() if value is not None}
    return StragglerDetectionCallback(**given)


@pytest.fixture(autouse=True)
def _no_detector_is_left() -> Iterator[None]:
    yield
    assert not Detector.initialized
    Detector.shutdown()


def lines(logged: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in logged.records if r.name == LOGGER and r.levelno == level]


class Module:
    """Takes what is logged to the trainer."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.options: dict[str, Any] = {}

    def log_dict(self, values: dict[str, float], **options: Any) -> None:
        self.values.update(values)
        self.options = options


def report(**scores: Any) -> Report:
    return Report(rank=0, rank_to_node={0: "a", 1: "b", 2: "b"}, **scores)


def test_arguments_are_those_of_the_guide_and_those_of_the_code() -> None:
    made = callback()
    assert made.num_gpu_perf_scores_to_print == 3
    assert made.enable_ptl_logging is False
    assert made.scores_to_compute == ["relative_perf_scores", "individual_perf_scores"]
    made = callback(
        num_gpu_perf_scores_to_log=None, num_gpu_perf_scores_to_print=5, enable_ptl_logging=True
    )
    assert made.num_gpu_perf_scores_to_print == 5
    assert callback(logger_name=None).logger.name == "nemo_logger.StragglerDetectionCallback"


def test_the_arguments_of_the_code_may_be_given_by_position() -> None:
    from otel_straggler.integrations.lightning import StragglerDetectionCallback

    made = StragglerDetectionCallback(300.0, True, False, 5, 0.7, 0.6, True, True, 4, "mine")
    assert (made.gpu_relative_perf_threshold, made.gpu_individual_perf_threshold) == (0.7, 0.6)
    assert (made.stop_if_detected, made.enable_ptl_logging) == (True, True)
    assert (made.profiling_interval, made.logger.name) == (4, "mine")


def test_no_score_asked_for_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="No straggler performance scores specified"):
        callback(calc_relative_gpu_perf=False, calc_individual_gpu_perf=False)


def test_the_number_of_scores_is_given_once() -> None:
    with pytest.raises(ValueError, match="expected exactly one of them"):
        callback(num_gpu_perf_scores_to_print=3)
    with pytest.raises(ValueError, match="expected exactly one of them"):
        callback(num_gpu_perf_scores_to_log=None)


def test_a_missing_threshold_is_a_type_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="gpu_relative_perf_threshold"):
        callback(gpu_relative_perf_threshold=None)


def test_slow_gpus_are_logged_with_rank_and_node(logged: pytest.LogCaptureFixture) -> None:
    made = callback(num_gpu_perf_scores_to_log=0)
    made._handle(
        report(
            gpu_relative_perf_scores={0: 1.0, 1: 0.6, 2: 0.9},
            gpu_individual_perf_scores={0: 0.5, 1: 1.0, 2: 1.0},
        ),
        Module(),
    )
    assert lines(logged, logging.WARNING) == [
        OPENING + "Some GPUs have worse relative performance. "
        "Affected ranks: {StragglerId(rank=1, node='b')}",
        OPENING + "Some GPUs performance dropped. Affected ranks: {StragglerId(rank=0, node='a')}",
    ]
    assert lines(logged, logging.INFO) == []


def test_sections_are_judged_only_with_a_threshold(logged: pytest.LogCaptureFixture) -> None:
    """By default a slow section is no straggler, as with NVRx."""
    slow = report(section_relative_perf_scores={"forward": {0: 1.0, 1: 0.5, 2: 1.0}})
    assert callback()._handle(slow, Module()) is False
    assert callback(section_perf_threshold=0.7)._handle(slow, Module()) is True
    assert lines(logged, logging.WARNING) == [
        OPENING + "Some ranks are slower than others in section 'forward'. "
        "Affected ranks: {StragglerId(rank=1, node='b')}"
    ]


def test_best_and_worst_scores_are_listed(logged: pytest.LogCaptureFixture) -> None:
    made = callback(num_gpu_perf_scores_to_log=1, calc_individual_gpu_perf=False)
    made._handle(report(gpu_relative_perf_scores={0: 0.8, 1: 1.0, 2: math.nan}), Module())
    [printed] = lines(logged, logging.INFO)
    assert printed == (
        "\nGPU relative performance:\n"
        " Worst performing 1/3 ranks:\n"
        "  Rank=0 Node=a Score=0.80\n"
        " Best performing 1/3 ranks:\n"
        "  Rank=1 Node=b Score=1.00\n"
    )


def test_scores_go_to_the_loggers_of_the_trainer() -> None:
    module = Module()
    made = callback(enable_ptl_logging=True)
    made._handle(report(gpu_relative_perf_scores={0: 0.8, 1: 1.0, 2: 0.9}), module)
    assert {n: v for n, v in module.values.items() if n.startswith("gpu_rel")} == {
        "gpu_relative_perf/min": 0.8,
        "gpu_relative_perf/median": 0.9,
        "gpu_relative_perf/max": 1.0,
    }
    assert math.isnan(module.values["gpu_individual_perf/min"])
    assert module.options == {"logger": True, "batch_size": 1, "rank_zero_only": True}


def test_a_logger_that_fails_does_not_end_the_fit(logged: pytest.LogCaptureFixture) -> None:
    made = callback(enable_ptl_logging=True)
    made._handle(report(), object())
    assert "Failed to log GPU performance scores" in lines(logged, logging.ERROR)[0]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_fit_prints_scores_and_logs_them(
    distribution: str, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    """The facts of NVRx's two own tests, without a GPU."""
    lightning = importlib.import_module(distribution)
    csv_logger = lightning.loggers.CSVLogger(tmp_path, name=None, flush_logs_every_n_steps=1)
    fit = trainer(
        distribution,
        tmp_path,
        [callback(enable_ptl_logging=True)],
        max_epochs=6,
        logger=csv_logger,
        log_every_n_steps=1,
    )
    fit.fit(model(distribution), loader())
    printed = "".join(lines(logged, logging.INFO))
    assert "GPU relative performance:" in printed
    assert "GPU individual performance:" in printed
    assert "Straggler report processing time: " in printed
    with (Path(csv_logger.log_dir) / "metrics.csv").open() as file:
        columns = next(csv.reader(file))
    assert {"gpu_relative_perf/min", "gpu_individual_perf/median"} <= set(columns)


def test_a_fit_without_logging_logs_nothing(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    made = callback(num_gpu_perf_scores_to_log=0)
    trainer(DISTRIBUTIONS[0], tmp_path, [made], max_epochs=6).fit(model(DISTRIBUTIONS[0]), loader())
    assert "performance" not in "".join(lines(logged, logging.INFO))


def test_sections_of_one_step_in_so_many_are_timed(tmp_path: Path) -> None:
    with Recorded() as recorded:
        fit = trainer(DISTRIBUTIONS[0], tmp_path, [callback(profiling_interval=2)], max_steps=4)
        fit.fit(model(DISTRIBUTIONS[0]), loader())
    assert "forward" in recorded.names(2)
    assert recorded.names(3) == ["step"]


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import lightning.pytorch as pl
import torch
from otel_straggler.integrations.lightning import StragglerDetectionCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def fit(kind):
    callbacks = [StragglerDetectionCallback(
        report_time_interval=0.0, calc_relative_gpu_perf=True, calc_individual_gpu_perf=True,
        num_gpu_perf_scores_to_print=0, gpu_relative_perf_threshold=0.7,
        gpu_individual_perf_threshold=0.7, stop_if_detected=True, enable_ptl_logging=False,
        section_perf_threshold=2.0,  # every rank is one
    )]
    if kind != "none":
        callbacks.append(pl.callbacks.ModelCheckpoint(
            dirpath=kind, save_last=kind == "save_last", every_n_epochs=1000))
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1000, min_epochs=1000,
        logger=False, enable_checkpointing=kind != "none", enable_progress_bar=False,
        enable_model_summary=False, callbacks=callbacks)
    try:
        trainer.fit(Model(), torch.utils.data.DataLoader(torch.rand(64, 8), batch_size=4))
    except SystemExit as left:
        print(f"rank {trainer.global_rank} {kind} {left.code}\\n", end="", flush=True)  # one write

for kind in ("save_last", "no_last", "none"):
    fit(kind)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_a_straggler_stops_both_ranks_after_saving(tmp_path: Path) -> None:
    """Rank 0 alone has the report; both end with code 1, also where nothing can be saved, and
    although the trainer has more epochs to run at the least."""
    (tmp_path / "train.py").write_text(SCRIPT)
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*ranks, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kinds = ("save_last", "no_last", "none")
    ended = {line for line in done.stdout.splitlines() if line.startswith("rank ")}
    assert ended == {f"rank {rank} {kind} 1" for rank in (0, 1) for kind in kinds}
    assert done.stderr.count("Detected stragglers. Terminating training...") == 6
    assert {path.parent.name for path in tmp_path.glob("*/last.ckpt")} == {"save_last", "no_last"}
