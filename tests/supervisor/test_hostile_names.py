"""Whoever may send a report chooses the names in it: none of them reaches more than one host."""

from __future__ import annotations

import glob
import io
import itertools
import posixpath
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.cli.supervise import status_lines
from otel_straggler.setting import read_section
from otel_straggler.supervisor.executors import Executor, PrintExecutor, StepError, host_name
from otel_straggler.supervisor.executors.kubernetes import KubernetesExecutor, KubernetesSettings
from otel_straggler.supervisor.executors.programs import Programs, filled
from otel_straggler.supervisor.executors.shell import ShellExecutor, ShellSettings
from otel_straggler.supervisor.executors.slurm import SlurmExecutor, SlurmSettings, expanded
from otel_straggler.supervisor.fleet import Decision
from otel_straggler.supervisor.policy import ACTIONS

from ..platforms import slurm_cluster
from ..platforms.slurm_cluster import MISSING, has_daemons
from ..waiting import eventually
from .hostile_names import MALFORMED, RUNS, UNLISTED
from .kubernetes_server import running_cluster
from .slurm_programs import SlurmStandIn
from .supervised import NOW_S, Scene, alert, policy_of

HAS_LIST = ("slurm", "kubernetes", "shell with a list")
ALL = ("print", "shell", *HAS_LIST)
HOST_ACTIONS = ("cordon", "replace_host", "restart_in_job", "scale_down")


@dataclass(frozen=True)
class Target:
    """An executor, and what it has done to anything."""

    executor: Executor
    done: Callable[[], object]


@pytest.fixture(scope="module", params=ALL)
def target(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Target]:
    with ExitStack() as stack:
        yield made(request.param, tmp_path_factory.mktemp("executor"), stack)


@pytest.fixture(scope="module", params=HAS_LIST)
def listing(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Target]:
    with ExitStack() as stack:
        yield made(request.param, tmp_path_factory.mktemp("executor"), stack)


def made(kind: str, folder: Path, stack: ExitStack) -> Target:
    """Each has hosts n1 to n3 where it has a list."""
    if kind == "print":
        stream = io.StringIO()
        return Target(PrintExecutor(stream), stream.getvalue)
    if kind == "slurm":
        slurm = SlurmStandIn(folder)
        return Target(slurm.executor, lambda: slurm.changes)
    if kind == "kubernetes":
        if find_spec("kubernetes") is None:
            pytest.skip("kubernetes is not installed: it would show what its client sends")
        cluster, kubeconfig = stack.enter_context(running_cluster(folder))
        cluster.add_pod("llama-0", "u0", "n1", "llama")
        settings = KubernetesSettings(kubeconfig=str(kubeconfig), namespace="train")
        return Target(KubernetesExecutor(settings, 10.0), lambda: cluster.changes)
    done = folder / "done"
    touch = [sys.executable, "-c", f"open({str(done)!r}, 'a').write('x')", "{host}"]
    sections: dict[str, Any] = {"commands": dict.fromkeys(ACTIONS, touch)}
    if kind == "shell with a list":
        sections["list_hosts"] = [sys.executable, "-c", "print('n1 a\\nn2 b\\nn3 c')"]
    shell = read_section(ShellSettings, sections, "executor.shell")
    programs = Programs(folder / "lock", 20.0)
    return Target(ShellExecutor(shell, programs), lambda: done.exists() and done.read_text())


def tried(target: Target, actions: Iterable[str] = HOST_ACTIONS, **more: str) -> list[str]:
    """Try actions; why each was refused, or what was done."""
    said = []
    for action in sorted({*actions} & target.executor.actions):
        values = {"host": "n1", "run_id": "", **more}
        decision = Decision(cause_id="alert:1:2", at_unix_s=NOW_S, action=action, **values)  # type: ignore[arg-type]
        try:
            steps = target.executor.steps(decision)
            said += [target.executor.perform(s, target.executor.observe(s)) for s in steps]
        except StepError as error:
            said.append(f"refused: {error}")
    return said


def check_refused(target: Target, name: str, said: list[str]) -> None:
    """Nothing was done, and why can be shown anywhere, whatever the name was."""
    case = ascii(name[:100])
    assert said, case
    for each in said:
        assert each.startswith("refused: "), case
        assert each.isascii(), case
        assert each.isprintable(), case
        assert len(each) < 1_000, case
    assert not target.done(), case


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_name_of_no_host_is_refused_by_every_executor(kind: str, target: Target) -> None:
    """Keywords in any case, ranges, lists, sets, patterns, options, paths, look-alikes, lengths."""
    for name in MALFORMED[kind]:
        check_refused(target, name, tried(target, host=name))


@pytest.mark.parametrize("name", UNLISTED, ids=lambda name: name[:40])
def test_a_host_that_the_scheduler_does_not_list_is_refused(name: str, listing: Target) -> None:
    """Also where the scheduler would find something for it."""
    said = tried(listing, ["cordon"], host=name)
    check_refused(listing, name, said)
    assert "Nothing was done" in said[0]


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_a_run_that_names_several_jobs_or_none_is_refused(kind: str, tmp_path: Path) -> None:
    """By the number of a job, or the value of a label."""
    with ExitStack() as stack:
        target = made(kind, tmp_path, stack)
        for run_id in RUNS:
            said = tried(target, ["restart_workload"], run_id=run_id)
            check_refused(target, run_id, said)


ANY_NAME = st.one_of(
    st.text(max_size=300),
    st.text("nN1.-_:/=,[]*?%$@ \0\n\u0578", max_size=8),
    st.sampled_from(["n1", "ALL", "all"]).flatmap(lambda name: st.permutations(f"{name}-.")),
).map("".join)


@given(name=ANY_NAME)
def test_what_is_not_refused_is_one_word_of_any_language(name: str) -> None:
    """Of a shell, a path, a pattern, a format, and a list of nodes, whatever it is."""
    for accepts in (host_name, needed_words):
        try:
            accepts(name)
        except StepError:
            continue
        word = name.removeprefix("rank ") if accepts is needed_words else name
        assert shlex.quote(word) == word
        assert posixpath.normpath(word) == word
        assert not word.startswith(("/", ".", "-"))
        assert glob.escape(word) == word
        assert quote(word, safe="/:") == word
        assert list(expanded(word)) == [word]
        assert word.isascii()
        assert word.isprintable()


def needed_words(name: str) -> None:
    filled(["{run_id}"], {"run_id": name})


def test_each_executor_lists_its_hosts(listing: Target) -> None:
    """By name, with the scheduler's id; and resolves each."""
    hosts = listing.executor.hosts()
    assert hosts is not None
    assert [name for name in hosts if name in ("n1", "n2")] == ["n1", "n2"]
    for name in ("n1", "n2"):
        assert listing.executor.resolve(name) == hosts[name]
        assert hosts[name].id


def test_a_host_that_has_got_the_name_since_is_left_alone(listing: Target) -> None:
    """The decision was about another one."""
    said = tried(listing, host="n1", host_id="of-a-host-before")
    check_refused(listing, "n1", said)
    assert "n1 is another host than the decision was about" in said[0]
    assert "of-a-host-before" in said[0]


@pytest.mark.parametrize("name", ["ALL", "All", "gpus", "n[1-3]", "n1,n2", "n4", "n1.cluster"])
def test_a_forged_host_drains_nothing_and_status_says_why(name: str, tmp_path: Path) -> None:
    """From a report and an alert to what a person sees."""
    slurm = SlurmStandIn(tmp_path)
    policy = policy_of("{max_fleet_share: 0.1, rules: [{alert: '.*', action: cordon}]}")
    scene = Scene(tmp_path / "db", policy, *(f"n{n}" for n in range(1, 4)), name)
    scene.restart(slurm.executor)
    scene.submit(alert("Any", node=name))
    while scene.engine.act_once():
        pass
    assert slurm.drained == []
    assert slurm.changes == []
    assert scene.state_of(name) == "running"
    (line,) = [each for each in status_lines(scene.engine.status(10)) if "because of Any" in each]
    assert "failed" in line
    assert "Nothing was done" in line


@pytest.mark.real_server
@pytest.mark.nightly
def test_no_name_drains_a_node_of_a_real_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four, two of which are a set; the name of one drains it alone, and a task is requeued
    without its array."""
    if not has_daemons():
        pytest.skip(MISSING)
    more = (
        "NodeName=n[1-3] NodeHostname=h[1-3] NodeAddr=127.0.0.1 Port=[23401-23403] Feature=a100\n"
        "NodeSet=gpus Nodes=n[2-3]\nNodeSet=featured Feature=a100\n"
        "PartitionName=others Nodes=n[1-3] State=UP"
    )
    with slurm_cluster.running_cluster(tmp_path, more) as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        executor = SlurmExecutor(SlurmSettings(), Programs(tmp_path / "lock", 30.0))
        target = Target(executor, lambda: drained(executor))
        assert len(executor.hosts()) == 4
        names = [*itertools.chain(*MALFORMED.values()), *UNLISTED, "h1", "featured", "others"]
        for name in names:
            check_refused(target, name, tried(target, ["cordon"], host=name))
        assert tried(target, ["cordon"], host="n1") == [""]
        assert target.done() == ["n1"]
        forged = ["a Restarts=99", "a\n   Requeue=1 Restarts=99 BatchFlag=1"]
        for options in (*(f"--job-name={name}" for name in forged), "--array=0-1"):
            check_requeued_alone(executor, submitted(options))


def submitted(option: str) -> str:
    """The number of a job that runs, or of the array of its tasks."""
    command = ["sbatch", "--parsable", "--requeue", "--output=/dev/null", option]
    printed = subprocess.check_output([*command, "--wrap=sleep 600"], text=True).strip()
    eventually(lambda: "RUNNING" in listed("--jobs", printed, "--format=%T"), 60)
    eventually(lambda: "PENDING" not in listed("--jobs", printed, "--format=%T"), 60)
    return printed


def listed(*options: str) -> list[str]:
    return subprocess.check_output(["squeue", "--noheader", *options], text=True).split()


def check_requeued_alone(executor: SlurmExecutor, job: str) -> None:
    """The job, or of an array the task of the same number, was restarted, and nothing else."""
    decision = Decision(
        cause_id="alert:1:2", at_unix_s=NOW_S, action="restart_workload", run_id=f"slurm-{job}"
    )
    (step,) = executor.steps(decision)
    before = executor.observe(step)
    assert before["restarts"] == 0
    assert executor.was_done(step, before) is None
    executor.perform(step, before)
    eventually(lambda: executor.was_done(step, before) is True, 60)
    restarts = listed("--states=all", "--Format=JobID:20,RestartCnt:20", "--jobs", job)
    assert dict(zip(restarts[::2], restarts[1::2], strict=True))[job] == "1"
    assert sum(map(int, restarts[1::2])) == 1
    subprocess.check_call(["scancel", job])
    eventually(lambda: "RUNNING" not in listed("--states=all", "--jobs", job, "--format=%T"), 60)
    with pytest.raises(StepError, match=r"is (CANCELLED|COMPLETING), and is not run again"):
        executor.observe(step)


def drained(executor: SlurmExecutor) -> list[str]:
    return [name for name, host in executor.hosts().items() if host.is_cordoned]
