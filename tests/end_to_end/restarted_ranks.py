"""Two ranks under torchrun; in the first attempt rank 1 kills itself after step 24."""

import os
import signal
import sys
import time

import otel_straggler

FIRST_S, SECOND_S = 0.01, 0.03
"""Of the section, in the first attempt and in the second."""


def main() -> None:
    is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    otel_straggler.configure(endpoint=sys.argv[1], run_id="restarted")
    for n in range(40):
        with otel_straggler.step(n), otel_straggler.section("forward"):
            time.sleep(FIRST_S if is_first else SECOND_S)
        if n == 22:  # the window of the first 20 steps is the newest for a while
            time.sleep(3)
        if is_first and n == 24:
            otel_straggler.flush()
            if os.environ["RANK"] == "1":
                time.sleep(1)  # rank 0 has sent its steps too
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # as in a collective: until torchrun ends it
    otel_straggler.shutdown()


if __name__ == "__main__":
    main()
