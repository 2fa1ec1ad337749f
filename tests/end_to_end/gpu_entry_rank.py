"""One rank of a training on the fake GPU, by one of the ways in which people have it scored.

python gpu_entry_rank.py WAY EVERY, with RANK, WORLD_SIZE and MASTER_* as usual: kernels are
recorded in one step of EVERY.

The last rank's work becomes 1.25 times as much in the second half. What a person would see is
printed as lines of JSON.
"""

import json
import logging
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from tests.end_to_end.fake_torch_gpu import (
    Sgd,
    Work,
    await_kernels,
    counts,
    model,
    record_one_step_of,
    use_fake_gpu,
)

FACTOR = 1.25
EVERY = int(sys.argv[2])
STEPS = 12 * max(10, EVERY)  # some of them are sampled
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def work_grows() -> None:
    Work.factor = FACTOR if RANK == RANKS - 1 else 1.0


def batches(steps: int) -> DataLoader:
    return DataLoader(TensorDataset(torch.ones(steps, 8)), batch_size=1)


def show(**what) -> None:
    print(json.dumps(what), flush=True)


def detector() -> None:
    """NVRx's example: sections by hand, a report of each half."""
    from otel_straggler import detector as straggler

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    straggler.Detector.initialize(gather_on_rank0=True, profiling_interval=EVERY)
    net = model()
    optimizer = Sgd(net.parameters(), lr=0.1)
    with straggler.Detector.detection_section("warm-up", profile_cuda=True):
        await_kernels()
    for half in range(2):
        if half:
            work_grows()
        for (x,) in batches(STEPS):
            with straggler.Detector.detection_section("forward", profile_cuda=True):
                loss = net(x).square().mean()
            with straggler.Detector.detection_section("backward", profile_cuda=True):
                loss.backward()
            with straggler.Detector.detection_section("optimizer", profile_cuda=True):
                optimizer.step()
        report = straggler.Detector.generate_report()
        if report is not None:
            show(relative=report.gpu_relative_perf_scores)
            show(individual=report.gpu_individual_perf_scores)
    show(counts=counts())
    straggler.Detector.shutdown()


def lightning() -> None:
    """Lightning's callback with the arguments of NVRx's guide, and scores to the trainer's log."""
    import lightning.pytorch as pl

    from otel_straggler.integrations.lightning import StragglerDetectionCallback

    logging.getLogger("nvrx").addHandler(logging.StreamHandler(sys.stdout))
    logging.getLogger("nvrx").setLevel(logging.INFO)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def training_step(self, batch, batch_idx):
            if self.global_step == STEPS:
                work_grows()
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return Sgd(self.parameters(), lr=0.1)

    class Seen(pl.Callback):
        def on_train_start(self, *_) -> None:
            await_kernels()

        def on_train_end(self, trainer, module) -> None:
            show(metrics={name: float(each) for name, each in trainer.logged_metrics.items()})
            show(counts=counts())

    callback = StragglerDetectionCallback(
        report_time_interval=0.6,
        calc_relative_gpu_perf=True,
        calc_individual_gpu_perf=True,
        num_gpu_perf_scores_to_log=3,
        gpu_relative_perf_threshold=0.85,
        gpu_individual_perf_threshold=0.85,
        stop_if_detected=False,
        enable_ptl_logging=True,
        profiling_interval=EVERY,
        logger_name="nvrx",
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy="ddp",
        max_steps=4 * STEPS,
        callbacks=[callback, Seen()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), batches(8 * STEPS))


def watch() -> None:
    """Four lines around a loop; the collector scores."""
    import otel_straggler

    record_one_step_of(EVERY)
    otel_straggler.configure(gpu_timing="cupti")
    net = model()
    optimizer = Sgd(net.parameters(), lr=0.1)
    loader = batches(4 * STEPS)
    otel_straggler.watch(net, optimizer, loader)
    await_kernels()
    _loop(net, optimizer, loader)
    otel_straggler.shutdown()


def zero_code() -> None:
    """A program that does not mention the package."""
    record_one_step_of(EVERY)
    net = model()
    _loop(net, Sgd(net.parameters(), lr=0.1), batches(4 * STEPS), has_begun=await_kernels)


def _loop(net, optimizer, loader, has_begun=lambda: None) -> None:
    for number, (x,) in enumerate(loader):
        if number == 2:
            has_begun()
            work_grows()
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    time.sleep(0.2)
    show(counts=counts())


if __name__ == "__main__":
    use_fake_gpu()
    WAYS = {each.__name__: each for each in (detector, lightning, watch, zero_code)}
    WAYS[sys.argv[1]]()
