"""Stand-ins of ``scontrol`` and ``squeue``. To update, ``ALL``, sets of nodes, ranges, and the
machine behind a node are names of nodes to them, as to Slurm 22.05; to show, too, where that takes
ranges only."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from otel_straggler.supervisor.executors.programs import Programs
from otel_straggler.supervisor.executors.slurm import SlurmExecutor, SlurmSettings

_PROGRAM = """#!{python} -ES
import json, re, sys
from pathlib import Path
state = Path({state!r})
now = json.loads(state.read_text())
words = sys.argv[1:]
now["calls"].append([Path(sys.argv[0]).name, *words])
nodes, jobs = now["nodes"], now["jobs"]

def expanded(text):
    ranged = re.fullmatch(r"(\\w*)\\[(\\d)-(\\d)\\]", text)
    if ranged is None:
        return text.split(",")
    return [ranged[1] + str(n) for n in range(int(ranged[2]), int(ranged[3]) + 1)]

def named(text):
    if text.upper() == "ALL":
        return list(nodes)
    if text in now["sets"]:
        return now["sets"][text]
    return [n for n in nodes for name in expanded(text) if name in (n, nodes[n]["machine"])]

def ended(error=""):
    state.write_text(json.dumps(now))
    if error:
        sys.exit(error)
    sys.exit(0)

if sys.argv[0].endswith("squeue"):
    options = dict(word.partition("=")[::2] for word in words)
    if "--jobs" in options:
        chosen = [j for j in jobs if options["--jobs"] in (j["id"], j["array"])]
        for job in chosen:
            keys = ("id", "array", "task", "n", "state", "user", "account")
            print("".join(f"{{job[key]:<256}}" for key in keys))
        ended("" if chosen else "slurm_load_jobs error: Invalid job id specified")
    for job in jobs:
        if options.get("--nodelist", job["nodes"]) in expanded(job["nodes"]) or len(options) == 3:
            print(job["id"], job["user"], job["account"], job["nodes"], sep="|")
    ended()
if words[0] == "requeue":
    for job in jobs:
        if words[1] in (job["id"], job["array"], job["array"] + "_" + job["task"]):
            job["n"] += 1
    ended()
if words[0] == "update":
    fields = dict(word.partition("=")[::2] for word in words[1:])
    now["sets"].update(now["hidden_sets"])
    chosen = named(fields["NodeName"])
    for name in chosen:
        nodes[name].update(state="IDLE+DRAIN", reason=fields["Reason"])
    ended("" if chosen else "slurm_update error: Invalid node name specified")
names = [word for word in words[2:] if not word.startswith("--")]
chosen = named(names[0]) if names else list(nodes)
for name in chosen:
    node = nodes[name]
    print(f"NodeName={{name}} Arch=x86_64 NodeAddr={{node['machine']}} "
          f"NodeHostName={{node['machine']}} OS=Linux 6 State={{node['state']}} "
          f"ThreadsPerCore=1 Reason={{node['reason']}} [me@2026]")
ended("" if chosen else f"Node {{names[0]}} not found")
"""


class SlurmStandIn:
    """Three nodes, a set of two of them, and a job on the first.

    Args:
        folder: gets the programs and their state.
    """

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state.json"
        nodes = {name: _node(f"{name}.cluster") for name in ("n1", "n2", "n3")}
        job = {"id": "7", "array": "7", "task": "N/A", "n": 4, "nodes": "n[1-2]"}
        job.update(state="RUNNING", user="alice", account="ml")
        sets = {"sets": {"gpus": ["n2", "n3"]}, "hidden_sets": {}}
        now = {"calls": [], "nodes": nodes, "jobs": [job], **sets}
        self._state.write_text(json.dumps(now))
        for name in ("scontrol", "squeue"):
            text = _PROGRAM.format(python=sys.executable, state=str(self._state))
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        settings = SlurmSettings(scontrol=str(folder / "scontrol"), squeue=str(folder / "squeue"))
        self.executor = SlurmExecutor(settings, Programs(folder / "lock", 20.0))

    @property
    def now(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self._state.read_text())
        return result

    def change(self, **more: Any) -> None:
        """Replace parts of the state."""
        self._state.write_text(json.dumps({**self.now, **more}))

    @property
    def changes(self) -> list[list[str]]:
        """Calls of scontrol that changed something."""
        return [call[1:] for call in self.now["calls"] if call[1] in ("update", "requeue")]

    @property
    def drained(self) -> list[str]:
        return [name for name, node in self.now["nodes"].items() if "DRAIN" in node["state"]]


def _node(machine: str) -> dict[str, str]:
    return {"machine": machine, "state": "IDLE", "reason": ""}
