"""NVRx's simulated faults: one rank kills or stops itself, some time after the start."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.inject.faults import Fault
from otel_straggler.inject.injector import Injection

_SIGNALS: Final = {"rank_killed": signal.SIGKILL, "rank_hung": signal.SIGSTOP}
_TYPES: Final = ("random", *_SIGNALS)


@dataclass
class SimulatedFaultParams:
    """A fault of one rank, ``base_delay`` + (0 to 1) * ``rand_delay`` after the start of the fit.

    Attributes:
        fault_type: "rank_killed" (SIGKILL), "rank_hung" (SIGSTOP), or "random": one of these.
        base_delay, rand_delay: seconds.
        rank_to_fail: None: any.

    Raises:
        ValueError: there is no such type.
    """

    fault_type: str
    base_delay: float
    rand_delay: float = 0.0
    rank_to_fail: int | None = None

    def __post_init__(self) -> None:
        if self.fault_type not in _TYPES:
            message = (
                f"simulated fault type is {self.fault_type!r}; expected one of {', '.join(_TYPES)}"
            )
            raise ValueError(message)


def parsed_fault(given: Any) -> SimulatedFaultParams | None:
    """From an instance, or a mapping of its fields.

    Raises:
        ValueError: it is neither.
    """
    if given is None or isinstance(given, SimulatedFaultParams):
        return given
    try:
        return SimulatedFaultParams(**given)
    except (TypeError, ValueError) as error:
        message = (
            f"simulated_fault_params is {given!r}; expected SimulatedFaultParams or a mapping of "
            f"its fields: {error}"
        )
        raise ValueError(message) from error


def start_fault(
    fault: SimulatedFaultParams,
    *,
    rank: int,
    world_size: int,
    broadcast: Callable[[int], int],
    report: Callable[[Injection], None] = lambda _: None,
) -> None:
    """Start a thread that sends this process the signal, if it is the rank that fails.

    Unlike a fault of a plan (``OTEL_STRAGGLER_INJECT``) a stopped rank is not continued.

    Args:
        broadcast: returns on all ranks what rank 0 gives it.
        report: sends the span of the fault, before it happens.
    """
    any_rank = random.randrange(world_size)
    failing = broadcast(any_rank if fault.rank_to_fail is None else fault.rank_to_fail)
    if rank != failing:
        return
    kind = random.choice(list(_SIGNALS)) if fault.fault_type == "random" else fault.fault_type
    delay_s = fault.base_delay + fault.rand_delay * random.random()
    timer = threading.Timer(delay_s, _fail, (kind, rank, report))
    timer.daemon = True
    timer.start()


def _fail(kind: str, rank: int, report: Callable[[Injection], None]) -> None:
    message = f"\n####\nSimulating fault: {kind}; rank to fail: {rank}\n#####\n"
    for stream in (sys.stdout, sys.stderr):
        print(message, file=stream, flush=True)
    now_ns = time.time_ns()
    fault = Fault(kind=kind, ranks=(rank,))
    report(Injection(fault=fault, start_ns=now_ns, end_ns=now_ns + 1, step=None))
    os.kill(os.getpid(), _SIGNALS[kind])
