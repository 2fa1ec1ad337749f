"""What one hostile sender costs, and what an honest run next to it sees.

    python -m benchmarks.hostile [--seconds 8] [--scale 1.0] [--only REGEX] [--strict]

Each row starts the real command in a process of its own, and an honest run of four ranks that
sends its steps and heartbeats live, each over a new connection. After a while the attack begins,
from another address. Its figures:

- ``cpu_s``, ``memory_above_idle_mib``: of the collector, while the attack lasts; the peak;
- ``heartbeat_s``: how long the slowest heartbeat of the honest run waited for its answer;
- ``windows_late``: whole windows that its newest window was behind the steps sent, at most;
- ``got_in``: of those who tried to get in on the port that is attacked, the part that was served;
- ``answers``: that the attacker got.

A row that concerns another port or another kind of sender is one `Attack` more, in
`benchmarks/hostile/attacks.py`. With ``--strict`` a missed budget is an error. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from benchmarks.harness.processes import cpu_ns, serving
from benchmarks.hostile.attacks import ATTACKS, MIB, Attack, Target
from benchmarks.hostile.honest_run import WINDOW_STEPS, HonestRun, Seen

FREE = "127.0.0.1:0"
STEP_S = 0.05
WARM_UP_STEPS = 60
SETTLE_S = 1.5
"""After the attack, in which the honest run is still looked at."""
MARGIN_S = 20.0
"""In which the honest run still has steps, if the machine is slow."""
POLL_S = 0.05
HEARTBEAT_S, WINDOWS_LATE, MEMORY_MIB = 1.0, 2, 512
Json = dict[str, Any]


def main() -> None:
    """Measure and print."""
    options = _options()
    _allow_descriptors()
    rows = {name: _measure(name, options) for name in ATTACKS if re.search(options.only, name)}
    budgets = {f"{name}: {k}": v for name, row in rows.items() for k, v in _budgets(row).items()}
    figures = {"seconds": options.seconds, "scale": options.scale, "rows": rows}
    print_result({**about("httptools", "uvloop", "grpcio", "cramjam"), **figures}, budgets)
    if options.strict and not all(budget["is_met"] for budget in budgets.values()):
        sys.exit(1)


def _options() -> argparse.Namespace:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each attack")
    parser.add_argument("--scale", type=float, default=1.0, help="of each dose")
    parser.add_argument("--only", default="", help="rows whose name it is found in")
    parser.add_argument("--strict", action="store_true", help="fail where a budget is missed")
    return parser.parse_args()


def _allow_descriptors() -> None:
    """Of the collector, as a service has them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _measure(name: str, options: argparse.Namespace) -> Json:
    attack = ATTACKS[name]
    collector = [sys.executable, "-m", "otel_straggler.cli", "collector"]
    collector += ["--otlp-http", FREE, "--otlp-grpc", FREE, "--metrics", FREE]
    collector += ["--window-steps", str(WINDOW_STEPS)]
    attacker = [sys.executable, "-m", "benchmarks.hostile.attacks", name, str(options.scale)]
    steps = WARM_UP_STEPS + int((options.seconds + SETTLE_S + MARGIN_S) / STEP_S)
    with (
        serving(collector) as (line, pid),
        subprocess.Popen(attacker, stdin=PIPE, stdout=PIPE, text=True) as sender,
    ):
        assert sender.stdout is not None
        sender.stdout.readline()
        target = Target(json.loads(line))
        honest = HonestRun(target.addresses, STEP_S, steps)
        honest.begin()
        _wait_for_windows(honest)
        figures = _attack(attack, sender, target, pid, honest, options.seconds)
        figures |= _seen(honest.end())
    return {"row": attack.row, "dose": attack.dose, **figures}


def _wait_for_windows(honest: HonestRun) -> None:
    until_s = time.monotonic() + 30.0
    while not honest.has_windows():
        if time.monotonic() > until_s:
            raise RuntimeError("the honest run had no window within 30 s, before any attack")
        time.sleep(POLL_S)


def _attack(
    attack: Attack,
    sender: subprocess.Popen[str],
    target: Target,
    pid: int,
    honest: HonestRun,
    seconds: float,
) -> Json:
    assert sender.stdin is not None
    assert sender.stdout is not None
    idle_mib, idle_ns = _resident_mib(pid), cpu_ns(pid)
    honest.begin_measuring()
    began_s = time.monotonic()
    print(json.dumps(target.addresses), file=sender.stdin, flush=True)
    peak_mib, tries = idle_mib, [] if attack.gets_in is None else [attack.gets_in(target)]
    while time.monotonic() < began_s + seconds:
        peak_mib = max(peak_mib, _resident_mib(pid))
        if attack.gets_in is not None:
            tries.append(attack.gets_in(target))
        time.sleep(POLL_S)
    used_s = (cpu_ns(pid) - idle_ns) / 1e9
    sender.stdin.close()
    attacker = json.loads(sender.stdout.readline())
    time.sleep(min(SETTLE_S, seconds))
    return {
        "cpu_s": round(used_s, 2),
        "memory_idle_mib": round(idle_mib),
        "memory_above_idle_mib": round(max(peak_mib, _resident_mib(pid)) - idle_mib),
        **attacker,
        **({"got_in": round(sum(tries) / len(tries), 3)} if tries else {}),
    }


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def _seen(seen: Seen) -> Json:
    return {
        "heartbeat_s": round(min(max(seen.heartbeat_s, default=1e6), 1e6), 3),
        "heartbeats": len(seen.heartbeat_s),
        "windows_late": max(seen.windows_late, default=1_000),
        "refused": seen.refused,
    }


def _budgets(row: Json) -> Json:
    budgets = {
        "heartbeat": judge(row["heartbeat_s"], HEARTBEAT_S, "s"),
        "windows late": judge(row["windows_late"], WINDOWS_LATE, "windows"),
        "memory": judge(row["memory_above_idle_mib"], MEMORY_MIB, "MiB"),
    }
    if "got_in" in row:
        budgets["kept out"] = judge(1.0 - row["got_in"], 0.001, "of tries")
    return budgets


if __name__ == "__main__":
    main()
