"""A process that trains nothing, but wakes up every millisecond and makes spans on request.

    python -m benchmarks.export.trainer WAY ENDPOINT BLOCK_S RATE [RATE ...]

It prints a line once it has warmed up. For every line on standard input it goes through one group
of blocks and prints its figures as a line of JSON; it ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.export.ways import Ours, StockSdk, Way

NAP_NS = 1_000_000
BURST = 2_000
"""Spans at once, then flushed: as many as the queue of the stock processor holds."""
BURSTS = 5
Json = dict[str, Any]


def main(way_name: str, endpoint: str, block_s: float, rates: list[int]) -> None:
    """Work until there are no more requests."""
    way: Way = StockSdk(endpoint) if way_name == "sdk" else Ours(endpoint)
    lead_s = min(1.1, block_s)
    _loop(way, lead_s, rates[-1])  # what is loaded and built once
    way.flush()
    print(json.dumps({"warmed_up_with": way.drain_made()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(_group(way, block_s, lead_s, rates)), flush=True)
    way.close()


def _group(way: Way, block_s: float, lead_s: float, rates: list[int]) -> Json:
    """Quiet, every rate, every rate in the opposite order, quiet: ABBA for each rate.

    A block at a new rate has a second before it that is not counted, so that what is drained once
    a second is drained in full within the block; a quiet one begins once everything is sent.
    """
    quiet = [_loop(way, block_s, 0)]
    at_rate: dict[int, list[Json]] = {rate: [] for rate in rates}
    last = 0
    for rate in (*rates, *reversed(rates)):
        if rate != last:
            _loop(way, lead_s, rate)
        at_rate[rate].append(_loop(way, block_s, rate))
        last = rate
    way.flush()
    quiet.append(_loop(way, block_s, 0))
    bursts = [_burst(way) for _ in range(BURSTS)]
    return {"quiet": quiet, "at_rate": at_rate, "bursts": bursts, "made": way.drain_made()}


def _loop(way: Way, length_s: float, rate: int) -> Json:
    """Sleep a millisecond, note how late it ended, make the spans that are due."""
    late_ns: list[int] = []
    made = 0
    used_ns, own_ns = time.process_time_ns(), time.thread_time_ns()
    begin_ns = now_ns = time.perf_counter_ns()
    end_ns = begin_ns + round(length_s * 1e9)
    while now_ns < end_ns:
        lay_down_ns = time.perf_counter_ns()
        time.sleep(NAP_NS / 1e9)
        now_ns = time.perf_counter_ns()
        late_ns.append(now_ns - lay_down_ns - NAP_NS)
        due = (now_ns - begin_ns) * rate // 1_000_000_000 - made
        if due:
            way.record(due)
            made += due
    own_ns = time.thread_time_ns() - own_ns
    took_s = (time.perf_counter_ns() - begin_ns) / 1e9
    p50, p99 = np.percentile(late_ns, [50, 99]) / 1e3
    return {
        "p50_us": p50,
        "p99_us": p99,
        "longest_us": max(late_ns) / 1e3,
        "wake_ups": len(late_ns),
        "spans": made,
        "spans_per_s": made / took_s,
        "trainer_cpu_share": own_ns / took_s / 1e9,
        "export_cpu_share": (time.process_time_ns() - used_ns - own_ns) / took_s / 1e9,
    }


def _burst(way: Way) -> Json:
    """Processor time per span: of recording in this thread, and of all else until all is sent.

    What a flush does in the calling thread belongs to sending: the stock processor's does it all.
    """
    used_ns, own_ns = time.process_time_ns(), time.thread_time_ns()
    way.record(BURST)
    own_ns = time.thread_time_ns() - own_ns
    way.flush()
    export_ns = time.process_time_ns() - used_ns - own_ns
    return {"record_ns": own_ns / BURST, "export_ns": export_ns / BURST}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), [int(rate) for rate in sys.argv[4:]])
