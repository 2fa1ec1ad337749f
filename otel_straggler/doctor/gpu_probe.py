"""What GPU timing this machine could have, tried out in a process of its own, which may crash.

Run as a program it loads the driver, initialises it without taking a GPU, has CUPTI record kernels
for a moment, and prints what came of it as one line of JSON. Only that process touches CUDA: some
versions of CUPTI end a process that has no driver.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from otel_straggler.native import NATIVE
from otel_straggler.record.gpu.reasons import Refusal, refusal_of

DRIVER = "libcuda.so.1"
_TIMEOUT_S = 30.0
_SUCCESS = 0


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of it.

    Attributes:
        cupti: why kernels could not be timed, as a code and a sentence; empty: they could.
        cupti_told: the sentence.
        events: why sections could not be timed by events; empty: they could.
        library: the libcupti that was used, empty if none.
        version: of its interface.
    """

    cupti: str = ""
    cupti_told: str = ""
    events: str = ""
    library: str = ""
    version: int = 0


def probe(path: str, folder: str, env: Mapping[str, str]) -> Probed:
    """Try it in another process.

    Args:
        path: of the libcupti to use; empty: search.
        folder: where torch's wheels have theirs; empty: nowhere.
        env: of that process.
    """
    command = [sys.executable, "-m", "otel_straggler.doctor.gpu_probe", path, folder]
    try:
        ended = subprocess.run(  # noqa: S603  our own module
            command, env=dict(env), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return _broken(f"CUPTI or the driver did not answer within {_TIMEOUT_S:.0f} s")
    try:
        return Probed(**json.loads(ended.stdout.splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"code {ended.returncode}"
        return _broken(f"a process that tried it was ended by {how}")


def try_here(path: str, folder: str) -> Probed:
    """Try it in this process: the one that may crash."""
    if NATIVE is None:
        return _all(Refusal("no_extension"))
    refusal = _driver_refusal()
    if refusal is not None:
        return _all(refusal)
    events = _why_no_events()
    timer = NATIVE.KernelTimer(path, folder, DRIVER, False, False, False)
    library, version, _ = timer.library()
    reason = timer.start()
    if reason:
        found = refusal_of(reason)
        return Probed(found.code, found.sentence, events, library, version)
    timer.stop(time.monotonic_ns() + 1_000_000_000)
    return Probed(events=events, library=library, version=version)


def _why_no_events() -> str:
    assert NATIVE is not None
    try:
        NATIVE.EventTimer(DRIVER, None, -1).state()
    except RuntimeError:  # the driver lacks what it needs
        return "no_events"
    return ""


def _driver_refusal() -> Refusal | None:
    """Load and initialise the driver. No context is made, so no memory of a GPU is taken."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return Refusal("no_driver", f"there is no CUDA driver here ({DRIVER} cannot be loaded)")
    init = getattr(driver, "cuInit", None)
    code = _SUCCESS if init is None else int(init(0))
    if code != _SUCCESS:
        return Refusal("no_cuda", f"the CUDA driver sees no GPU (cuInit gave {code})")
    return None


def _all(refusal: Refusal) -> Probed:
    return Probed(refusal.code, refusal.sentence, refusal.code)


def _broken(told: str) -> Probed:
    return _all(Refusal("broken_cupti", told))


def _main(path: str, folder: str) -> None:
    sys.stdout.write(json.dumps(asdict(try_here(path, folder))) + "\n")
    sys.stdout.flush()
    os._exit(0)  # nothing of CUDA is torn down


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
