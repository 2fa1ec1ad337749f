"""The two kinds of processes that the demo starts, and ends: a collector and a training run."""

import os
import subprocess
import sys
from pathlib import Path

from otel_straggler.demo.collector import Collector, end

__all__ = ["RANKS", "Collector", "Training"]

TRAIN = Path(__file__).with_name("train.py")
RANKS = 4


class Training:
    """``torchrun`` with four ranks of train.py on this machine."""

    def __init__(self, endpoint: str, run_id: str, log: Path, *flags: object) -> None:
        self._log = log
        elastic = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, *elastic, f"--nproc-per-node={RANKS}", TRAIN, *map(str, flags)],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "OTEL_STRAGGLER_ENDPOINT": endpoint,
                    "OTEL_STRAGGLER_RUN_ID": run_id,
                    "GLOO_SOCKET_IFNAME": "lo",
                    "OMP_NUM_THREADS": "1",
                },
            )

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        """Loss and accuracy, as last told."""
        told = [line for line in self.log.splitlines() if line.startswith("step ")]
        return told[-1] if told else ""

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """End it, if it has not ended: torchrun ends its ranks."""
        end(self._process)
