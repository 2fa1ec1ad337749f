"""Runs a script as ranks that are forked from a process that has PyTorch, whose import takes longer
than all that the pages' scripts do; their variables are those of torchrun.

    python forked_ranks.py RANKS SCRIPT
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import traceback


def main(ranks: int, script: str) -> int:
    import torch.distributed  # noqa: F401 - for the children

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    of_all = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": f"run-{port}",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    children = [_forked(rank, of_all, script) for rank in range(ranks)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return int(any(codes))


def _forked(rank: int, of_all: dict[str, str], script: str) -> int:
    child = os.fork()
    if child:
        return child
    os.environ.update(of_all, RANK=str(rank), LOCAL_RANK=str(rank))
    sys.argv = [script]
    try:
        runpy.run_path(script, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child must not go on as its parent
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
