"""Run a training script, or a module, as ``python`` would, and watch its training.

    python -m otel_straggler.integrations.zero_code SCRIPT [ARGUMENTS]
    python -m otel_straggler.integrations.zero_code -m MODULE [ARGUMENTS]

``otel-straggler run`` has torchrun start this for every rank.
"""

from __future__ import annotations

import runpy
import signal
import sys
from pathlib import Path

from otel_straggler.client.failures import write_error_file
from otel_straggler.client.termination import end_with_parent
from otel_straggler.integrations.zero_code import StragglerInstrumentor, end

_USAGE = 2


def main(arguments: list[str]) -> int:
    """Run the program to its end; what it raises is raised."""
    end_with_parent(signal.SIGKILL)
    is_module = arguments[:1] == ["-m"]
    target = arguments[1:] if is_module else arguments
    if not target:
        print("got no script; expected SCRIPT [ARGUMENTS] or -m MODULE", file=sys.stderr)  # noqa: T201
        return _USAGE
    if not is_module and not Path(target[0]).exists():
        print(f"{target[0]}: no such file in {Path.cwd()}; expected a script", file=sys.stderr)  # noqa: T201
        return _USAGE
    sys.argv[:] = target
    StragglerInstrumentor().instrument()
    try:
        if is_module:
            runpy.run_module(target[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(target[0]).resolve().parent)
            runpy.run_path(target[0], run_name="__main__")
    except BaseException as error:
        write_error_file(error)  # before what takes time: the others lose their peer meanwhile
        raise
    finally:
        end(None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
