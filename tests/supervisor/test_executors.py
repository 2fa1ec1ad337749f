"""Executors that run programs: no shell, no option by mistake, a deadline, Slurm's commands."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.errors import ConfigError
from otel_straggler.setting import read_section
from otel_straggler.supervisor.executors import Executor, PrintExecutor, StepError, UncertainError
from otel_straggler.supervisor.executors import programs as module_of_programs
from otel_straggler.supervisor.executors.programs import Programs
from otel_straggler.supervisor.executors.shell import ShellExecutor, ShellSettings
from otel_straggler.supervisor.executors.slurm import SlurmExecutor, SlurmSettings
from otel_straggler.supervisor.fleet import Decision
from otel_straggler.supervisor.policy import Action

from ..platforms.slurm_cluster import MISSING, has_daemons, running_cluster
from ..waiting import eventually
from .slurm_programs import SlurmStandIn
from .supervised import NOW_S

NASTY = ["n;id", "$(id)", "`id`", "a b", "'", '"', "n\n", "*", "|cat", "{run_id}", "n&"]


def decided(action: Action, **more: Any) -> Decision:
    values = {"host": "n1", "run_id": "slurm-7", "code": "xid_79", "rule": "r", **more}
    return Decision(at_unix_s=NOW_S, action=action, **{"cause_id": "alert:1:2", **values})


def programs(folder: Path, timeout_s: float = 20.0) -> Programs:
    return Programs(folder / "lock", timeout_s)


def shell(folder: Path, timeout_s: float = 20.0, **sections: Any) -> ShellExecutor:
    settings = read_section(ShellSettings, sections, "executor.shell")
    return ShellExecutor(settings, programs(folder, timeout_s))


def performed(executor: Executor, decision: Decision) -> list[str]:
    """What each step says."""
    steps = executor.steps(decision)
    return [executor.perform(step, executor.observe(step)) for step in steps]


# --- print --------------------------------------------------------------------------------------


def test_the_default_says_what_would_be_done() -> None:
    """One JSON line; after a crash nobody can say whether it was printed."""
    printed = io.StringIO()
    executor = PrintExecutor(printed)
    decision = decided("replace_host", replacement="n2")
    assert performed(executor, decision) == ["printed"]
    assert json.loads(printed.getvalue()) == {
        "action": "replace_host",
        "host": "n1",
        "replacement": "n2",
        "run_id": "slurm-7",
        "rule": "r",
        "cause_id": "alert:1:2",
    }
    assert executor.was_done(executor.steps(decision)[0], {}) is None


# --- shell --------------------------------------------------------------------------------------

ECHO = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]


@pytest.mark.parametrize("name", [*NASTY, "-rf", "--all", "", "a\0b", "../x", "/etc", "a//b"])
def test_a_name_that_a_program_could_read_otherwise_is_refused(name: str, tmp_path: Path) -> None:
    """Of a host, a run, or a cause; before anything is run. The command may be a script, whose
    shell, or that of another machine, reads its arguments again."""
    executor = shell(
        tmp_path, commands={"cordon": [*ECHO, "{host}"], "scale_up": [*ECHO, "{run_id}"]}
    )
    with pytest.raises(StepError, match=r"not the name of one host|argument \{host\} is empty"):
        executor.steps(decided("cordon", host=name))
    with pytest.raises(StepError, match=r"the argument \{run_id\}"):
        executor.steps(decided("scale_up", run_id=name))


def test_the_name_of_a_rule_is_the_operators(tmp_path: Path) -> None:
    """It may have blanks, but be no option."""
    executor = shell(tmp_path, commands={"cordon": [*ECHO, "{rule}", "--rule={rule}"]})
    (printed,) = performed(executor, decided("cordon", rule="broken GPU"))
    assert json.loads(printed) == ["broken GPU", "--rule=broken GPU"]
    with pytest.raises(StepError, match="would be the option '-x'"):
        executor.steps(decided("cordon", rule="-x"))


def test_a_command_in_one_text_is_split_before_names_are_put_in(tmp_path: Path) -> None:
    """Quotes group as in a shell."""
    command = f"{sys.executable} -c 'import sys; print(sys.argv[1:])' 'a b' {{device}}"
    executor = shell(tmp_path, commands={"cordon": command})
    assert performed(executor, decided("cordon", device="rank 3")) == ["['a b', 'rank 3']"]


def test_a_command_that_fails_is_an_error_with_the_end_of_its_output(tmp_path: Path) -> None:
    """And one that cannot be started, too."""
    failing = [sys.executable, "-c", "import sys; print('no such node'); sys.exit(3)"]
    executor = shell(tmp_path, commands={"cordon": failing, "scale_up": [str(tmp_path / "none")]})
    with pytest.raises(StepError, match="exit code 3: no such node"):
        performed(executor, decided("cordon"))
    with pytest.raises(StepError, match="cannot be started"):
        performed(executor, decided("scale_up"))


def test_what_a_program_prints_is_one_bounded_line_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end; a list that is longer is no list."""
    monkeypatch.setattr(module_of_programs, "MAX_OUTPUT", 100_000)
    printing = [sys.executable, "-c", "print('x\\n' * 500_000 + 'a\\nERROR \\x1b[2J forged')"]
    (text,) = performed(shell(tmp_path, commands={"cordon": printing}), decided("cordon"))
    assert text.endswith("x x a ERROR \N{REPLACEMENT CHARACTER}[2J forged")
    assert len(text) == 500
    with pytest.raises(StepError, match="prints more than 100000 bytes"):
        shell(tmp_path, list_hosts=printing).hosts()


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("n1 a\nn2 b\n\n", {"n1": "a", "n2": "b"}),
        ("  n1\t a  more \n", {"n1": "a"}),
        ("n1\n", {"n1": ""}),
        ("", None),
        ("n1 a\nn1 b\n", None),
    ],
)
def test_a_list_has_each_host_once(
    printed: str, expected: dict[str, str] | None, tmp_path: Path
) -> None:
    """One a line, with its id."""
    executor = shell(tmp_path, list_hosts=[sys.executable, "-c", f"print({printed!r}, end='')"])
    if expected is None:
        with pytest.raises(StepError, match="expected each host once"):
            executor.hosts()
    else:
        assert {name: host.id for name, host in (executor.hosts() or {}).items()} == expected


def test_a_list_that_fails_lets_nothing_be_done(tmp_path: Path) -> None:
    """Nor is the name taken for a host."""
    failing = [sys.executable, "-c", "raise SystemExit('no answer')"]
    executor = shell(tmp_path, list_hosts=failing, commands={"cordon": [*ECHO, "{host}"]})
    with pytest.raises(StepError, match="exit code 1: no answer"):
        performed(executor, decided("cordon"))


def test_after_the_deadline_nobody_can_say_what_was_done(tmp_path: Path) -> None:
    """The program and its children are ended."""
    child = tmp_path / "child"
    command = ["sh", "-c", f"sleep 300 & echo $! > {child}; wait"]
    executor = shell(tmp_path, timeout_s=1.0, commands={"cordon": command})
    with pytest.raises(UncertainError, match="did not end within 1 s"):
        performed(executor, decided("cordon"))
    eventually(lambda: not _runs(int(child.read_text())))


def _runs(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("exit_code", "expected"), [(0, True), (1, False), (2, None), (127, None)])
def test_a_check_says_whether_an_action_was_done(
    exit_code: int, expected: bool | None, tmp_path: Path
) -> None:
    """By its exit code."""
    check = [sys.executable, "-c", f"raise SystemExit({exit_code})", "{cause_id}"]
    executor = shell(tmp_path, commands={"cordon": ECHO}, done_checks={"cordon": check})
    (step,) = executor.steps(decided("cordon"))
    assert executor.was_done(step, {}) is expected


def test_without_a_check_nobody_can_say(tmp_path: Path) -> None:
    """Nor with one that is not there."""
    for checks in ({}, {"cordon": [str(tmp_path / "none")]}):
        executor = shell(tmp_path, commands={"cordon": ECHO}, done_checks=checks)
        assert executor.was_done(executor.steps(decided("cordon"))[0], {}) is None


def test_a_program_that_outlived_its_supervisor_is_waited_for(tmp_path: Path) -> None:
    """It has the lock; only once it has ended is asked whether the step was done."""
    go, done = tmp_path / "go", tmp_path / "done"
    script = (
        "import time; from pathlib import Path\n"
        f"while not Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        f"Path({str(done)!r}).touch()"
    )
    supervisor = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "from otel_straggler.supervisor.executors.programs import Programs\n"
        f"run = Programs(Path({str(tmp_path / 'lock')!r}), 60).run\n"
        f"threading.Thread(target=run, args=([{sys.executable!r}, '-c', {script!r}],)).start()\n"
        "children = Path(f'/proc/{os.getpid()}/task')\n"
        "while not any((t / 'children').read_text() for t in children.iterdir()): pass\n"
        "os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", supervisor], check=False)
    assert ended.returncode == -9
    ask = [sys.executable, "-c", f"from pathlib import Path; print(Path({str(done)!r}).exists())"]
    with pytest.raises(UncertainError, match="an earlier step still runs"):
        programs(tmp_path, timeout_s=0.2).run(ask)
    go.touch()
    assert programs(tmp_path).run(ask).output == "True\n"


# --- Slurm --------------------------------------------------------------------------------------


def test_slurm_drains_the_node_and_requeues_the_job(tmp_path: Path) -> None:
    """The reason names the cause, and its code only if that is a word."""
    stub = SlurmStandIn(tmp_path)
    performed(stub.executor, decided("replace_host", run_id="slurm-7-2"))
    other = {"cause_id": "alert:3:4", "code": "x\tState=RESUME NodeName=n3"}
    performed(stub.executor, decided("cordon", host="n2", **other))
    drain, requeue, other = stub.changes
    assert drain[:3] == ["update", "NodeName=n1", "State=DRAIN"]
    assert drain[3].startswith("Reason=otel-straggler:")
    assert drain[3].endswith(" xid_79")
    assert requeue == ["requeue", "7"]
    assert other[3].endswith(" see the journal")


def test_slurm_says_after_a_crash_whether_a_step_was_done(tmp_path: Path) -> None:
    """A drain by its reason, a requeue by the count of restarts; before it, nobody can say."""
    stub = SlurmStandIn(tmp_path)
    drain, requeue = stub.executor.steps(decided("replace_host"))
    before = stub.executor.observe(requeue)
    assert before == {"job": "7", "restarts": 4}
    assert stub.executor.was_done(drain, {}) is False
    assert stub.executor.was_done(requeue, before) is None
    stub.executor.perform(drain, stub.executor.observe(drain))
    stub.executor.perform(requeue, before)
    assert stub.executor.was_done(drain, {}) is True
    assert stub.executor.was_done(requeue, before) is True
    (other,) = stub.executor.steps(decided("cordon", host="n1"))
    assert stub.executor.was_done(other, {}) is True, "the same cause"


@pytest.mark.parametrize(
    "run_id",
    ["llama", "slurm-", "slurm-7;8", "slurm-\N{ARABIC-INDIC DIGIT ONE}", "slurm-0", "slurm-07"],
)
def test_slurm_requeues_only_what_names_a_job(run_id: str, tmp_path: Path) -> None:
    """By the pattern of the settings."""
    with pytest.raises(StepError, match="does not name a job"):
        SlurmStandIn(tmp_path).executor.steps(decided("restart_workload", run_id=run_id))


def test_a_host_without_a_run_is_only_drained(tmp_path: Path) -> None:
    """As a spare."""
    steps = SlurmStandIn(tmp_path).executor.steps(decided("replace_host", run_id=""))
    assert [step.verb for step in steps] == ["drain"]


def test_slurm_says_what_runs_where_and_what_is_drained(tmp_path: Path) -> None:
    """In its own ids, by which a run is known."""
    stub = SlurmStandIn(tmp_path)
    performed(stub.executor, decided("cordon", host="n3"))
    hosts = stub.executor.hosts()
    assert [(h.name, h.is_cordoned, h.allocated_to) for h in hosts.values()] == [
        ("n1", False, ("7",)), ("n2", False, ("7",)), ("n3", True, ()),
    ]  # fmt: skip
    assert stub.executor.resolve("n1") == hosts["n1"]
    assert stub.executor.allocation("slurm-7-2") in (hosts["n1"].allocated_to or ())
    assert stub.executor.allocation("llama") == ""
    (tmp_path / "squeue").unlink()
    assert stub.executor.hosts()["n1"].allocated_to is None, "unknown is not idle"
    assert stub.executor.resolve("n1").allocated_to is None


def test_slurm_is_asked_about_a_step_once_its_program_has_ended(tmp_path: Path) -> None:
    """Which may have outlived its supervisor; what Slurm lists waits for nothing."""
    stub = SlurmStandIn(tmp_path)
    executor = stub.executor
    names = {name: str(tmp_path / name) for name in ("scontrol", "squeue")}
    impatient = SlurmExecutor(SlurmSettings(**names), programs(tmp_path, timeout_s=0.1))
    steps = executor.steps(decided("replace_host"))
    befores = [executor.observe(step) for step in steps]
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert executor.resolve("n1") == executor.hosts()["n1"]
        for step, before in zip(steps, befores, strict=True):
            with pytest.raises(UncertainError, match="an earlier step still runs"):
                impatient.was_done(step, before)
    assert [executor.was_done(*each) for each in zip(steps, befores, strict=True)] == [False, None]


def test_of_an_array_one_task_is_requeued(tmp_path: Path) -> None:
    """The number of the array is also that of its last task, and would be all of them."""
    stub = SlurmStandIn(tmp_path)
    (job,) = stub.now["jobs"]
    tasks = [{**job, "id": n, "array": "9", "task": t} for n, t in (("10", "0"), ("9", "1"))]
    stub.change(jobs=tasks)
    performed(stub.executor, decided("restart_workload", run_id="slurm-9"))
    assert stub.changes == [["requeue", "9_1"]]
    assert [each["n"] for each in stub.now["jobs"]] == [4, 5]


@pytest.mark.parametrize(
    ("state", "requeued"),
    [
        ("RUNNING", 1),
        ("FAILED", 1),
        ("NODE_FAIL", 1),
        ("COMPLETED", 0),
        ("CANCELLED by 0", 0),
        ("COMPLETING", 0),
    ],
)
def test_a_job_that_is_over_is_not_run_again(state: str, requeued: int, tmp_path: Path) -> None:
    """By an alert that comes late, or is forged; Slurm itself would."""
    stub = SlurmStandIn(tmp_path)
    stub.change(jobs=[{**job, "state": state} for job in stub.now["jobs"]])
    if requeued:
        performed(stub.executor, decided("restart_workload"))
    else:
        with pytest.raises(StepError, match=f"job 7 is {state}, and is not run again"):
            performed(stub.executor, decided("restart_workload"))
    assert len(stub.changes) == requeued


@pytest.mark.parametrize(("owner", "is_theirs"), [("ml", True), ("alice", False), ("", False)])
def test_a_team_names_no_job_of_another(owner: str, is_theirs: bool, tmp_path: Path) -> None:
    """Where the name of a run says whose job it is, Slurm has to say the same."""
    stub = SlurmStandIn(tmp_path)
    settings = SlurmSettings(
        scontrol=str(tmp_path / "scontrol"),
        squeue=str(tmp_path / "squeue"),
        job_pattern=r"(?P<account>[^/]*)/slurm-(?P<job>\d+)",
    )
    executor = SlurmExecutor(settings, programs(tmp_path))
    decision = decided("restart_workload", run_id=f"{owner}/slurm-7")
    allocated = executor.hosts()["n1"].allocated_to or ()
    assert (executor.allocation(decision.run_id) in allocated) == is_theirs
    if is_theirs:
        performed(executor, decision)
    else:
        with pytest.raises(StepError, match="Slurm lists '7 account=ml'"):
            performed(executor, decision)
    assert len(stub.changes) == is_theirs


@pytest.mark.parametrize(
    ("pattern", "is_right"),
    [
        (r"job-(\d+)", True),
        (r"job-(?P<job>\d+)", True),
        (r"(?P<user>\w+)/(?P<job>\d+)", True),
        (r"(?P<user>\w+)/(?P<account>\w+)/(?P<job>\d+)", True),
        (r"(?P<user>\w+)/(\d+)", False),
        (r"(?P<team>\w+)/(?P<job>\d+)", False),
        (r"(?P<user>\d+)", False),
        ("job", False),
        ("(", False),
    ],
)
def test_a_pattern_of_jobs_names_a_job_and_perhaps_its_owner(pattern: str, is_right: bool) -> None:
    """Any other stops the start."""
    section = {"job_pattern": pattern}
    if is_right:
        assert read_section(SlurmSettings, section, "slurm").job_pattern == pattern
    else:
        with pytest.raises(ConfigError, match="groups named job and user or account"):
            read_section(SlurmSettings, section, "slurm")


def test_a_node_that_is_gone_since_the_decision_is_not_drained(tmp_path: Path) -> None:
    """Slurm would have taken the name for something else, such as a set of nodes."""
    stub = SlurmStandIn(tmp_path)
    (drain,) = stub.executor.steps(decided("cordon"))
    nodes = stub.now["nodes"]
    stub.change(nodes={"n2": nodes["n2"], "n3": nodes["n3"]}, sets={"n1": ["n2", "n3"]})
    with pytest.raises(StepError, match="whose NodeName is exactly 'n1': it lists 'n2', 'n3'"):
        stub.executor.observe(drain)
    assert stub.drained == []


def test_a_set_of_nodes_with_the_name_of_a_node_is_reported(tmp_path: Path) -> None:
    """Slurm lists sets nowhere, so it is noticed only afterwards."""
    stub = SlurmStandIn(tmp_path)
    stub.change(hidden_sets={"n1": ["n1", "n3"]})
    with pytest.raises(
        UncertainError, match=r"drained more than n1: n3\. slurm\.conf has a NodeSet"
    ):
        performed(stub.executor, decided("cordon"))


@pytest.mark.real_server
@pytest.mark.nightly
def test_a_real_slurm_drains_its_node_and_requeues_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says afterwards that both were done."""
    if not has_daemons():
        pytest.skip(MISSING)
    with running_cluster(tmp_path) as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        node = _output(["sinfo", "--noheader", "--format=%n"])
        job = _output(
            ["sbatch", "--parsable", "--requeue", "--output=/dev/null", "--wrap=sleep 600"]
        )
        eventually(lambda: _output(["squeue", "-h", "-j", job, "-o", "%T"]) == "RUNNING", 120)
        executor = SlurmExecutor(SlurmSettings(), programs(tmp_path))
        drain, requeue = executor.steps(decided("replace_host", host=node, run_id=f"slurm-{job}"))
        before = executor.observe(requeue)
        assert [executor.was_done(drain, {}), executor.was_done(requeue, before)] == [False, None]
        executor.perform(drain, executor.observe(drain))
        executor.perform(requeue, before)
        assert executor.was_done(drain, {}) is True
        eventually(lambda: executor.was_done(requeue, before) is True, 60)
        assert "drain" in _output(["sinfo", "--noheader", "--format=%T"])
        with pytest.raises(StepError, match="no node whose NodeName is exactly 'elsewhere'"):
            executor.observe(executor.steps(decided("cordon", host="elsewhere"))[0])


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    return done.stdout.strip()


def test_of_what_a_program_prints_only_the_end_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To clean all of 50 MB took ten seconds, in which a step that had failed was in progress."""
    cleaned: list[int] = []
    monkeypatch.setattr(
        module_of_programs, "visible", lambda text: cleaned.append(len(text)) or text
    )
    done = module_of_programs.Done(1, "\0" * 50_000_000 + " the end")
    assert done.shown.endswith("the end")
    assert max(cleaned) <= 10_000
