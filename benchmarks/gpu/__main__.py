"""``python -m benchmarks.gpu``: see the package's docstring."""

from __future__ import annotations

import argparse
import os
import sys

from benchmarks.gpu import __doc__ as about_all
from benchmarks.gpu.presence import FAKE, why_no_gpu, why_not_built

NO_GPU = 3
"""Exit code: nothing was measured, and nothing is wrong."""
NOT_BUILT = 2
"""Exit code: what is to be measured was not built."""
FAILED = 1
"""Exit code: an experiment failed; the others are in the JSON."""
STANDARD = "benchmarks.gpu.registry"


def main(arguments: list[str]) -> int:
    """Say that there is no GPU, or measure, print the table and write the JSON."""
    given = _parsed(arguments)
    if given.fake:
        os.environ[FAKE] = "1"
    if given.experiments == STANDARD and (why := why_no_gpu()):
        print(why, file=sys.stderr)
        return NO_GPU
    if given.here:
        return 0
    if given.experiments == STANDARD and (why := why_not_built()):
        print(why, file=sys.stderr)
        return NOT_BUILT
    from benchmarks.gpu.checking import check  # NumPy and our package may be missing until here

    return FAILED if check(given) else 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=about_all,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="keys, with commas: E3,E4")
    parser.add_argument(
        "--missing", action="store_true", help="only what the JSON does not have as done"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a quick check")
    parser.add_argument("--soak", action="store_true", help="E9 alone, 8 minutes")
    parser.add_argument("--json", default="", help="add results to this file")
    parser.add_argument("--seconds", type=float, default=0.0, help="of all experiments together")
    parser.add_argument("--here", action="store_true", help="only say whether there is a GPU")
    parser.add_argument(
        "--fake", action="store_true", help="a dry run without a GPU; its figures mean nothing"
    )
    parser.add_argument("--experiments", default=STANDARD, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
