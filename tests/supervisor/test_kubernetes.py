"""The executor for Kubernetes: the real client, against an API server on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.supervisor.executors import StepError, UncertainError
from otel_straggler.supervisor.executors.kubernetes import KubernetesExecutor, KubernetesSettings
from otel_straggler.supervisor.fleet import Decision
from otel_straggler.supervisor.policy import Action

from .kubernetes_server import Cluster, running_cluster
from .supervised import NOW_S

needs_library = pytest.mark.skipif(
    find_spec("kubernetes") is None,
    reason="kubernetes is not installed: it would show what its client sends",
)


class Kubernetes:
    """A cluster with two pods of run ``llama`` on two nodes and one of another run."""

    def __init__(self, cluster: Cluster, kubeconfig: Path) -> None:
        self.cluster = cluster
        cluster.add_pod("llama-0", "u0", "n1", "llama")
        cluster.add_pod("llama-1", "u1", "n2", "llama")
        cluster.add_pod("other-0", "u2", "n1", "other")
        settings = KubernetesSettings(kubeconfig=str(kubeconfig), namespace="train")
        self.executor = KubernetesExecutor(settings, timeout_s=10.0)

    def do(self, action: Action, **more: Any) -> None:
        for step in self.executor.steps(decided(action, **more)):
            self.executor.perform(step, self.executor.observe(step))


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Kubernetes]:
    with running_cluster(tmp_path) as (cluster, kubeconfig):
        yield Kubernetes(cluster, kubeconfig)


def decided(action: Action, **more: Any) -> Decision:
    values = {"host": "n1", "run_id": "llama", **more}
    return Decision(cause_id="alert:1:2", at_unix_s=NOW_S, action=action, **values)


@needs_library
def test_cordoning_marks_the_node_and_names_the_cause(kubernetes: Kubernetes) -> None:
    """Nothing else of it changes, and no pod."""
    kubernetes.do("cordon")
    assert kubernetes.cluster.nodes["n1"]["spec"] == {"unschedulable": True}
    annotations = kubernetes.cluster.nodes["n1"]["metadata"]["annotations"]
    assert annotations == {"otel-straggler/cause": "alert:1:2"}
    assert kubernetes.cluster.nodes["n2"]["spec"] == {}
    assert len(kubernetes.cluster.pods) == 3


@needs_library
@pytest.mark.parametrize(
    ("action", "left"),
    [
        ("restart_workload", ["other-0"]),
        ("restart_in_job", ["llama-1", "other-0"]),
        ("replace_host", ["llama-1", "other-0"]),
    ],
)
def test_restarting_deletes_pods_of_the_run_alone(
    kubernetes: Kubernetes, action: Action, left: list[str]
) -> None:
    """All of them, or those on the host."""
    kubernetes.do(action)
    assert sorted(kubernetes.cluster.pods) == left
    assert bool(kubernetes.cluster.nodes["n1"]["spec"]) == (action == "replace_host")


@needs_library
def test_a_run_that_is_over_is_not_restarted(kubernetes: Kubernetes) -> None:
    """Of one that goes on, pods that have succeeded are left, with their logs."""
    pods = kubernetes.cluster.pods
    pods["llama-0"]["status"] = {"phase": "Succeeded"}
    kubernetes.do("restart_workload")
    assert sorted(pods) == ["llama-0", "other-0"]
    with pytest.raises(StepError, match="no pod that has not succeeded has straggler/run=llama"):
        kubernetes.do("restart_workload")


@needs_library
def test_a_pod_that_has_been_replaced_is_not_deleted(kubernetes: Kubernetes) -> None:
    """Its name is the same, its uid is not; one that is gone is no error."""
    (step,) = kubernetes.executor.steps(decided("restart_workload"))
    before = kubernetes.executor.observe(step)
    assert before == {"pods": [["llama-0", "u0"], ["llama-1", "u1"]]}
    assert kubernetes.executor.was_done(step, before) is False
    kubernetes.cluster.add_pod("llama-0", "u9", "n1", "llama")
    del kubernetes.cluster.pods["llama-1"]
    assert kubernetes.executor.was_done(step, before) is True
    kubernetes.executor.perform(step, before)
    assert kubernetes.cluster.pods["llama-0"]["metadata"]["uid"] == "u9"
    assert kubernetes.cluster.changes == []


@needs_library
def test_a_node_that_got_the_name_of_another_is_not_cordoned(kubernetes: Kubernetes) -> None:
    """Neither between the decision and the step, nor within the step, nor after a crash."""
    (step,) = kubernetes.executor.steps(decided("cordon", host_id="of-n1"))
    before = kubernetes.executor.observe(step)
    kubernetes.cluster.nodes["n1"]["metadata"]["uid"] = "of-another"
    with pytest.raises(StepError, match="n1 is another host than the decision was about"):
        kubernetes.executor.observe(step)
    with pytest.raises(StepError, match="patch_node: HTTP 422"):
        kubernetes.executor.perform(step, before)
    assert kubernetes.executor.was_done(step, before) is None
    assert kubernetes.cluster.changes == []


@needs_library
def test_all_nodes_are_listed_with_what_runs_there(kubernetes: Kubernetes) -> None:
    """However many pages that are."""
    cluster = kubernetes.cluster
    for n in range(3, 1_200):
        cluster.nodes[f"n{n}"] = {"metadata": {"name": f"n{n}", "uid": f"of-n{n}"}, "spec": {}}
        cluster.add_pod(f"wide-{n}", f"w{n}", f"n{n}", "wide")
    cluster.pods["wide-3"]["status"] = {"phase": "Succeeded"}
    cluster.nodes["n4"]["spec"]["unschedulable"] = True
    hosts = kubernetes.executor.hosts()
    assert len(hosts) == 1_199
    assert hosts["n1"].allocated_to == ("llama", "other")
    assert hosts["n3"].allocated_to == ()
    assert hosts["n1199"].allocated_to == ("wide",)
    assert [host.name for host in hosts.values() if host.is_cordoned] == ["n4"]
    assert kubernetes.executor.allocation("wide") == "wide"
    assert kubernetes.executor.allocation("team/wide") == ""


@needs_library
def test_a_cordon_of_somebody_else_is_not_taken_for_ours(kubernetes: Kubernetes) -> None:
    """After a crash it is done again, which changes only the annotation."""
    (step,) = kubernetes.executor.steps(decided("cordon"))
    kubernetes.cluster.nodes["n1"]["spec"]["unschedulable"] = True
    assert kubernetes.executor.was_done(step, {}) is False
    kubernetes.executor.perform(step, kubernetes.executor.observe(step))
    assert kubernetes.executor.was_done(step, {}) is True


@needs_library
def test_what_the_api_server_refuses_has_failed_and_what_it_does_not_answer_is_unknown(
    kubernetes: Kubernetes,
) -> None:
    """403 changes nothing; after 500 nobody knows."""
    (step,) = kubernetes.executor.steps(decided("cordon"))
    before = kubernetes.executor.observe(step)
    for status, kind in ((403, StepError), (404, StepError), (500, UncertainError)):
        kubernetes.cluster.failing = status
        with pytest.raises(kind, match=f"patch_node: HTTP {status}"):
            kubernetes.executor.perform(step, before)
        assert kubernetes.executor.was_done(step, {}) is None


@needs_library
def test_a_run_without_pods_cannot_be_restarted(kubernetes: Kubernetes) -> None:
    """Its name may be wrong. On a host that lost its pods there is nothing left to delete."""
    with pytest.raises(StepError, match="no pod that has not succeeded has straggler/run=gone"):
        kubernetes.do("restart_workload", run_id="gone")
    kubernetes.do("replace_host", run_id="gone")
    assert kubernetes.cluster.nodes["n1"]["spec"] == {"unschedulable": True}
    assert len(kubernetes.cluster.pods) == 3


@needs_library
@pytest.mark.parametrize(
    "more",
    [{"run_id": "a,b=c"}, {"run_id": ""}, {"run_id": "llama)"}, {"host": "../pods"}, {"host": ""}],
)
def test_a_name_that_selects_something_else_is_refused(
    kubernetes: Kubernetes, more: dict[str, str]
) -> None:
    """A selector is made of it, or a path."""
    with pytest.raises(StepError, match=r"cannot be the value of a label|not the name of one host"):
        kubernetes.executor.steps(decided("restart_in_job", **more))


@needs_library
def test_a_kubeconfig_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """And outside of a pod, there has to be one."""
    for path in ("", str(tmp_path / "none")):
        with pytest.raises(ConfigError, match=r"kubernetes.kubeconfig: got"):
            KubernetesExecutor(KubernetesSettings(kubeconfig=path), timeout_s=1.0)


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(UnavailableError, match=r"pip install 'otel-straggler\[kubernetes\]'"):
        KubernetesExecutor(KubernetesSettings(), timeout_s=1.0)
