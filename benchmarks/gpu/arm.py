"""The process of one arm: gets ready, then works on request.

    python -m benchmarks.gpu.arm MODULE NAME OPTIONS

MODULE has ``make_arm(name, options)``, which gives an object with ``turn(**order) -> dict`` and
``finish() -> dict``. Lines of JSON come on standard input, answers go to standard output; whatever
else prints there goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any


def main(module: str, name: str, options: str) -> int:
    """Serve until the other side closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        working = importlib.import_module(module).make_arm(name, json.loads(options))
        answer({"ready": True})
        for line in sys.stdin:
            order = json.loads(line)
            answer(working.finish() if order.pop("finish", False) else working.turn(**order))
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        answer({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # what a broken tracer does at the end of a process is not measured
