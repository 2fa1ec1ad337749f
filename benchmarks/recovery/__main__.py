"""How long a run of two nodes takes from a fault to its next step, phase by phase.

    python -m benchmarks.recovery [STORY ...]

Two network namespaces with two gloo ranks each, started by ``otel-straggler run`` with an agent;
a real Prometheus and Alertmanager with the intervals of ``benchmarks/alert_delay/servers.py``; and
a real supervisor with the example's policy, which is paged, too. Each phase is counted from the end
of the one before. The agent acts after 20 s without an all-reduce, so that the alert about a hang
comes first.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.alert_delay.stage import Stage
from benchmarks.harness.about import about
from benchmarks.harness.budgets import print_result
from benchmarks.recovery.nodes import why_not
from benchmarks.recovery.stories import STORIES
from benchmarks.recovery.supervising import supervising


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stories", nargs="*", metavar="STORY", help=", ".join(STORIES))
    given = parser.parse_args()
    if reason := why_not():
        parser.error(reason)
    unknown = set(given.stories) - set(STORIES)
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; expected {', '.join(STORIES)}")
    results = {}
    with tempfile.TemporaryDirectory() as folder, supervising(Path(folder) / "sup") as supervisor:
        stage = Stage(Path(folder), supervisor.url)
        try:
            for name in given.stories or STORIES:
                run_id = name.replace(" ", "-")
                recovery = STORIES[name](stage, Path(folder) / run_id)
                if decided_s := supervisor.decided_s(run_id):
                    recovery.at_s["decision"] = decided_s
                results[name] = {
                    "phases_s": {k: round(v, 2) for k, v in recovery.phases_s().items()},
                    "attempts": recovery.attempts,
                    "is_finished": recovery.is_finished,
                    "alerts": [page.names() for page in recovery.pages],
                    "acted": [each["action"] for each in supervisor.acted(run_id)],
                }
        finally:
            stage.close()
    print_result({**about("torch"), "stories": results}, {})


if __name__ == "__main__":
    main()
