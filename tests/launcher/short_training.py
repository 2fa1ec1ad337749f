"""A rank that does as it is asked, without torch.

    short_training.py FOLDER WHAT

WHAT: `kill` (rank 1 kills itself in the first attempt), `two-jobs` (the first ends well and has not
finished), `wait` (until a signal comes), `stuck` (fails, and leaves the same step each time).
"""

import os
import signal
import sys
import time
from pathlib import Path


def main(folder: Path, what: str) -> None:
    rank, attempt = os.environ["RANK"], int(os.environ["OTEL_STRAGGLER_ATTEMPT"])
    print(f"rank {rank} of attempt {attempt} of {os.environ['OTEL_STRAGGLER_RUN_ID']}", flush=True)
    (folder / f"rank-{rank}.{attempt}").write_text(str(os.getpid()))
    if what == "wait":
        time.sleep(300)
    if what == "stuck":
        own = folder / f"latest_step.{rank}"
        own.write_text("350\n")
        own.replace(folder / "latest_step")  # whole, also for who looks while another rank writes
        sys.exit(3)
    if attempt == 0 and what == "kill":
        if rank == "1":
            while not (folder / "rank-0.0").exists():
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(300)
    if rank == "0" and attempt == 1:
        Path(os.environ["FAULT_TOL_FINISHED_FLAG_FILE"]).touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
