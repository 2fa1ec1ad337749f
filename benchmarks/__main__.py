"""Runs every benchmark in a process of its own and keeps its JSON in ``out/benchmarks/``.

    python -m benchmarks [--record] [NAME ...]

With ``--record`` results go to ``docs/measurements/`` too, for those whose figures stand there.
Soak and fuzz runs are long doses of tests, not numbers; they have targets of their own.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "benchmarks"
RECORDED = HERE.parent / "docs" / "measurements"
NOT_HERE = {
    "__main__", "checkpoints", "compare_commits", "harness", "inside_backward", "no_loss",
    "real_runs", "soak", "trainers",
}  # fmt: skip
LONGEST_S = 1_800
ARGUMENTS = {"detection": ["--quick", "--json", "-"]}  # the full set: make bench-detection


def main(wanted: list[str]) -> int:
    """Run the benchmarks; the answer is how many failed."""
    is_recorded = "--record" in wanted
    wanted = [name for name in wanted if name != "--record"]
    result = sorted(m.name for m in pkgutil.iter_modules([str(HERE)]) if m.name not in NOT_HERE)
    if unknown := set(wanted) - set(result):
        print(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(result)}")
        return 2
    OUT.mkdir(parents=True, exist_ok=True)
    failed = [name for name in wanted or result if not _run(name, is_recorded=is_recorded)]
    print(f"results in {OUT.relative_to(HERE.parent)}/" + (f"; failed: {failed}" if failed else ""))
    return len(failed)


def _run(name: str, *, is_recorded: bool) -> bool:
    print(f"== {name}", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", *ARGUMENTS.get(name, [])]
    try:
        answer = subprocess.run(
            command, cwd=HERE.parent, stdout=subprocess.PIPE, timeout=LONGEST_S, check=True
        )
        result = json.loads(answer.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        print(f"   failed: {error}")
        return False
    text = json.dumps(result, indent=2)
    (OUT / f"{name}.json").write_text(text + "\n")
    if is_recorded and (RECORDED / f"{name}.json").exists():
        (RECORDED / f"{name}.json").write_text(text + "\n")
    print(text)
    print(f"   {time.monotonic() - started:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
