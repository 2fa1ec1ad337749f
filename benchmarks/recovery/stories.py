"""What fails in a run of two nodes, and when what has happened until it has finished."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.alert_delay.stage import Notification, Stage
from benchmarks.recovery.nodes import Node, two_nodes

Json = dict[str, Any]
TRAINING = Path(__file__).with_name("training.py")
COMMAND = (sys.executable, "-m", "otel_straggler.cli", "run")
STEPS, FAULT_STEP = 90, 45
TIMEOUT_S = 20.0
"""Longer than an alert takes, so that people know before the agent acts."""


def agent_options(timeout_s: float) -> tuple[str, ...]:
    """Ends a rank that does nothing for so long outside of an all-reduce, in which ranks wait for
    others: those are its victims."""
    return (
        f"--ft-param-rank_section_timeouts=forward:{timeout_s:g},all_reduce:600",
        f"--ft-param-rank_out_of_section_timeout={timeout_s:g}",
        "--ft-param-workload_check_interval=0.2",
        "--ft-param-timeout_action=terminate",
    )


MAX_S = 200.0
PORT = 29_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One story.

    Attributes:
        at_s: when each phase was over, seconds since 1970, in order.
        steps, events: as training and launchers have logged them.
        hangs: diagnostics that an agent has written, and the stacks with them.
        pages: notifications of the Alertmanager.
        exit_codes: of the launchers.
    """

    at_s: dict[str, float]
    steps: list[Json]
    events: list[Json]
    hangs: list[Json] = field(default_factory=list)
    stacks: str = ""
    pages: list[Notification] = field(default_factory=list)
    exit_codes: list[int] = field(default_factory=list)
    is_finished: bool = False
    logs: str = ""

    def phases_s(self) -> dict[str, float]:
        """Seconds of each phase, from the end of the one before; the alert's from the fault."""
        aside = {"fault", "alert", "decision"}
        times = {name: at for name, at in self.at_s.items() if name not in aside}
        result, before = {}, self.at_s["fault"]
        for name, at in times.items():
            result[name], before = at - before, at
        for name in ("alert", "decision"):
            if name in self.at_s:
                result[f"{name}, from the fault"] = self.at_s[name] - self.at_s["fault"]
        result["all"] = before - self.at_s["fault"]
        return result

    @property
    def attempts(self) -> list[int]:
        """Attempts in which steps were done."""
        return sorted({step["attempt"] for step in self.steps})


class TwoNodes:
    """A run of two nodes with two ranks each; ``folder`` stands for their shared file system."""

    def __init__(self, stage: Stage, nodes: tuple[Node, Node], folder: Path) -> None:
        self.stage, self.nodes, self.folder = stage, nodes, folder
        self.run_id = folder.name
        self.logs = folder / "logs"
        self.launchers: list[Any] = [None, None]
        for index in range(2):
            self.start(index)

    def start(self, index: int) -> None:
        node = self.nodes[index]
        options = (
            *("--until-finished", "--max-jobs=2", f"--log-dir={self.logs}"),
            *agent_options(TIMEOUT_S),
            *("--nnodes=2", "--nproc-per-node=2", "--max-restarts=3", "--rdzv-backend=c10d"),
            *(f"--rdzv-endpoint={self.nodes[0].address}:{PORT}", f"--rdzv-id={self.run_id}"),
            *(f"--rdzv-conf=is_host={1 - index}", f"--local-addr={node.address}"),
        )
        log = self.folder / f"{node.label}.log"
        command = (*COMMAND, *options, TRAINING, self.folder, STEPS)
        self.launchers[index] = node.start(list(map(str, command)), {}, log)

    def wait_for(self, claim: Callable[[], Any]) -> Any:
        """Raises: TimeoutError: with the ends of the logs."""
        ends_at_s = time.monotonic() + MAX_S
        while not (value := claim()):
            if time.monotonic() > ends_at_s:
                raise TimeoutError(self.printed())
            time.sleep(0.05)
        return value

    def wait_for_step(self, step: int) -> None:
        self.wait_for(lambda: any(each["step"] >= step for each in self.steps()))

    def finish(self) -> list[int]:
        """Exit codes of the launchers."""
        return [self.wait_for(lambda p=p: (p.poll() is not None and [p.returncode]))[0]
                for p in self.launchers]  # fmt: skip

    def steps(self) -> list[Json]:
        return lines_of(self.folder / "steps.jsonl")

    def events(self) -> list[Json]:
        events = [one for path in self.logs.glob("events-*.jsonl") for one in lines_of(path)]
        return sorted(events, key=lambda event: float(event["at_unix_s"]))

    def printed(self) -> str:
        logs = sorted(self.folder.glob("node-*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-6000:]}" for log in logs)

    def recovery(self, fault_s: float, exit_codes: list[int], **at_s: float) -> Recovery:
        """All that is known once it has ended."""
        flag = self.logs / "finished"
        files = sorted(self.logs.glob("diagnostics-*/*.hang.json"))
        hangs = [json.loads(path.read_text()) for path in files]
        stacks = self.logs.glob("diagnostics-*/*.stacks.txt")
        pages = self.stage.reported(self.run_id)
        found = found_s(hangs)
        return Recovery(
            at_s={
                "fault": fault_s,
                **found,
                **at_s,
                **restart_s(self.events(), self.steps(), fault_s),
                **({"finished": flag.stat().st_mtime} if flag.exists() else {}),
                **({"alert": pages[0].at_s} if pages else {}),
            },
            steps=self.steps(),
            events=self.events(),
            hangs=hangs,
            stacks="\n".join(path.read_text(errors="replace") for path in stacks),
            pages=pages,
            exit_codes=exit_codes,
            is_finished=flag.exists(),
            logs=self.printed(),
        )


def found_s(hangs: list[Json]) -> dict[str, float]:
    """When the agent found the first hang, and had its diagnostics."""
    if not hangs:
        return {}
    first = min(hangs, key=lambda hang: str(hang["at"]))
    diagnosed_s = datetime.fromisoformat(first["at"]).timestamp()
    return {"found": diagnosed_s - first["diagnosing_s"], "diagnosed": diagnosed_s}


def restart_s(events: list[Json], steps: list[Json], fault_s: float) -> dict[str, float]:
    """When ranks were found dead, started again, and did a step. Empty: there was no restart."""

    def first(name: str, *, min_attempt: int = 0) -> dict[str, float]:
        at = [e["at_unix_s"] for e in events
              if e["name"] == name and e["at_unix_s"] >= fault_s
              and e["attempt"] >= min_attempt]  # fmt: skip
        return {"": max(at) if min_attempt else min(at)} if at else {}

    again = [step["at"] for step in steps if step["attempt"] > 0]
    if not again:
        return {}
    return {
        "terminated": first("straggler.attempt.ended")[""],
        "restarted": first("straggler.attempt.started", min_attempt=1)[""],
        "first step": min(again),
    }


def lines_of(path: Path) -> list[Json]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


@contextlib.contextmanager
def running(stage: Stage, folder: Path, fault: Json | None = None) -> Iterator[TwoNodes]:
    """A run, with a fault that a rank finds at its step."""
    folder.mkdir(parents=True)
    if fault is not None:
        (folder / "fault.json").write_text(json.dumps(fault))
    with two_nodes(stage.shared.addresses["otlp_http"]) as nodes:
        yield TwoNodes(stage, nodes, folder)


def rank_hung(stage: Stage, folder: Path) -> Recovery:
    """Rank 3 waits for nobody; the agent ends it, torchelastic starts all ranks again."""
    return _rank_fails(stage, folder, "hang")


def rank_killed(stage: Stage, folder: Path) -> Recovery:
    """SIGKILL of rank 3."""
    return _rank_fails(stage, folder, "kill")


def _rank_fails(stage: Stage, folder: Path, kind: str) -> Recovery:
    fault = {"rank": 3, "step": FAULT_STEP, "kind": kind}
    with running(stage, folder, fault) as run:
        codes = run.finish()
        failed = json.loads((folder / "failed.json").read_text())
        return run.recovery(failed["at"], codes)


def agent_killed(stage: Stage, folder: Path) -> Recovery:
    """SIGKILL of the second node's agent; its launcher starts another, and no step waits."""
    with running(stage, folder) as run:
        run.wait_for_step(FAULT_STEP)
        before = agents_of(run.nodes[1])
        fault_s = time.time()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        run.wait_for(lambda: set(agents_of(run.nodes[1])) - set(before))
        agent_again = time.time()
        codes = run.finish()
        return run.recovery(fault_s, codes, **{"agent again": agent_again})


def node_killed(stage: Stage, folder: Path) -> Recovery:
    """SIGKILL of all processes of the second node; a scheduler starts its launcher again."""
    with running(stage, folder) as run:
        run.wait_for_step(FAULT_STEP)
        fault_s = time.time()
        run.nodes[1].kill()
        run.launchers[1].wait()
        run.start(1)
        codes = run.finish()
        return run.recovery(fault_s, codes, **{"node again": fault_s})


def agents_of(node: Node) -> list[int]:
    result = []
    for pid in node.pids():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"otel_straggler.agent" in words:
                result.append(pid)
    return result


STORIES: dict[str, Callable[[Stage, Path], Recovery]] = {
    "rank hung": rank_hung,
    "rank killed": rank_killed,
    "agent killed": agent_killed,
    "node killed": node_killed,
}
