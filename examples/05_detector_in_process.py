"""You will see two ranks of a process group score each other, with no collector and no network.
Run it with: python examples/05_detector_in_process.py
It takes about 10 seconds.
"""

import os
import tempfile
import time

import torch.distributed as dist
import torch.multiprocessing as mp

from otel_straggler.detector import Detector

RANKS, STEPS = 2, 20


def train(rank: int, store: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    Detector.initialize(node_name=f"node-{rank}")
    for _ in range(STEPS):
        with Detector.detection_section("data_loading"):
            time.sleep(0.01)
        with Detector.detection_section("forward"):
            time.sleep(0.05 if rank == 1 else 0.02)

    # All ranks call this; rank 0 gets the scores of all ranks, the others get None.
    report = Detector.generate_report()
    if report is not None:
        for section, scores in report.section_relative_perf_scores.items():
            print(f"{section:14}", {r: f"{score:.2f}" for r, score in scores.items()})
        listed = report.identify_stragglers()["straggler_sections_relative"]
        for section, ranks in listed.items():
            for each in ranks:
                print(f"rank {each.rank} on {each.node} is slow in {section}")
    Detector.shutdown()
    dist.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(f"{folder}/store",), nprocs=RANKS)


if __name__ == "__main__":
    main()
