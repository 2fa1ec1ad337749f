"""Kubernetes: cordons nodes and deletes pods, which their Job or JobSet creates again elsewhere.

Needs the library ``kubernetes`` (extra ``kubernetes``), and rights to get, list and delete pods and
to get, list and patch nodes: docs/operate/supervisor.md.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.setting import ANY_TEXT, option, text
from otel_straggler.supervisor.executors import (
    StepError,
    UncertainError,
    check_same,
    host_name,
    shown,
)
from otel_straggler.supervisor.fleet import Decision, SchedulerHost
from otel_straggler.supervisor.policy import Action
from otel_straggler.supervisor.store import Step

CORDON: Final = "cordon"
DELETE_PODS: Final = "delete_pods"
CAUSE_ANNOTATION: Final = "otel-straggler/cause"
_RUN: Final = "{run_id}"
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NODE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_KEY: Final = re.compile(r"(?:^|,)\s*([\w./-]+)\s*==?\s*\{run_id\}\s*(?:,|$)")
"""The label whose value is the run, in the selector."""
_PAGE: Final = 500
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_GONE: Final = frozenset({404, 409})
_REFUSED: Final = frozenset({400, 401, 403, 422, 429})
"""Answers after which nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """The executor ``kubernetes``."""

    kubeconfig: str = option(
        "", ANY_TEXT, "path of a kubeconfig; empty = the service account of this pod"
    )
    namespace: str = option("default", text("a namespace", bool), "of the pods of all runs")
    pod_selector: str = option(
        "straggler/run={run_id}",
        text("a label selector with {run_id} in it", lambda value: _RUN in value),
        "label selector of the pods of a run",
    )


class KubernetesExecutor:
    """Every step may be repeated: cordoning changes nothing twice, and a pod is deleted by its uid,
    which a new pod of the same name does not have.

    Args:
        core: a ``CoreV1Api``; None: made from the settings.

    Raises:
        UnavailableError: the library is not installed.
        ConfigError: the kubeconfig cannot be used.
    """

    name = "kubernetes"
    actions: frozenset[Action] = frozenset(
        {"restart_in_job", "restart_workload", "replace_host", "cordon", "notify"}
    )

    def __init__(
        self, settings: KubernetesSettings, timeout_s: float, core: Any | None = None
    ) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._core = _core(settings) if core is None else core

    # --- what the API server lists ---------------------------------------------------------------

    def hosts(self) -> Mapping[str, SchedulerHost]:
        runs = self._runs_by_node()
        nodes = self._pages(self._core.list_node)
        return {node.metadata.name: _host(node, runs) for node in nodes}

    def resolve(self, name: str) -> SchedulerHost:
        return _host(self._node(name), self._runs_by_node(name))

    def allocation(self, run_id: str) -> str:
        return run_id if _LABEL.fullmatch(run_id) else ""

    def _node(self, name: str) -> Any:
        """The node of exactly this name."""
        try:
            node = self._ask(self._core.read_node, _checked(name))
        except _GoneError:
            text = f"the API server has no node whose name is exactly {shown(name)}"
            raise _GoneError(f"{text}. Nothing was done") from None
        if node.metadata.name != name or not node.metadata.uid:
            text = f"the API server returns {shown(str(node.metadata.name))} for {shown(name)}"
            raise StepError(f"{text}. Nothing was done")
        return node

    def _runs_by_node(self, node: str = "") -> Mapping[str, set[str]] | None:
        """Values of the run's label of the pods that have not ended, by node; None if the selector
        has no label for the run."""
        key = _KEY.search(self._settings.pod_selector)
        if key is None:
            return None
        on_node = {"field_selector": f"spec.nodeName={node}"} if node else {}
        runs: dict[str, set[str]] = defaultdict(set)
        list_pods, namespace = self._core.list_namespaced_pod, self._settings.namespace
        for pod in self._pages(list_pods, namespace, label_selector=key[1], **on_node):
            if pod.spec.node_name and _phase(pod) not in _ENDED:
                runs[pod.spec.node_name].add(pod.metadata.labels[key[1]])
        return runs

    def _pages(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Iterator[Any]:
        page = self._ask(method, *arguments, limit=_PAGE, **options)
        yield from page.items
        while after := page.metadata and page.metadata._continue:  # noqa: SLF001 - its public name
            page = self._ask(method, *arguments, limit=_PAGE, _continue=after, **options)
            yield from page.items

    # --- steps -----------------------------------------------------------------------------------

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        """In a restart in the job, and where a host is replaced, only the pods on that host are
        deleted: the other agents wait for them to come back."""
        steps = []
        if decision.action in ("cordon", "replace_host"):
            arguments = {"cause": decision.cause_id, "host_id": decision.host_id}
            steps.append(Step(verb=CORDON, target=_checked(decision.host), arguments=arguments))
        runs_there = decision.action == "replace_host" and decision.run_id
        if runs_there or decision.action == "restart_in_job":
            steps.append(self._deletion(decision, _checked(decision.host)))
        if decision.action == "restart_workload":
            steps.append(self._deletion(decision, ""))
        return tuple(steps)

    def _deletion(self, decision: Decision, node: str) -> Step:
        if not _LABEL.fullmatch(decision.run_id):
            raise StepError(f"the run {shown(decision.run_id)} cannot be the value of a label")
        selector = self._settings.pod_selector.replace(_RUN, decision.run_id)
        arguments = {"selector": selector, "node": node, "host_id": node and decision.host_id}
        return Step(verb=DELETE_PODS, target=decision.run_id, arguments=arguments)

    def observe(self, step: Step) -> dict[str, Any]:
        node = step.target if step.verb == CORDON else step.arguments["node"]
        before = {}
        if node:
            resolved = _host(self._node(node), None)
            check_same(resolved, step.arguments.get("host_id", ""))
            before = {"node": resolved.name, "uid": resolved.id}
        return before if step.verb == CORDON else {**before, "pods": self._pods(step, node)}

    def _pods(self, step: Step, node: str) -> list[list[str]]:
        """Names and uids of the pods that a step deletes."""
        chosen = {"label_selector": step.arguments["selector"]}
        if node:
            chosen["field_selector"] = f"spec.nodeName={node}"
        listed = self._pages(self._core.list_namespaced_pod, self._settings.namespace, **chosen)
        pods = [pod for pod in listed if _phase(pod) != "Succeeded"]
        if not pods and not node:
            raise StepError(f"no pod that has not succeeded has {step.arguments['selector']}")
        if any(node not in ("", pod.spec.node_name) for pod in pods):
            raise StepError(f"the API server lists pods that are not on {node}. Nothing was done")
        return [[pod.metadata.name, pod.metadata.uid] for pod in pods]

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        if step.verb == CORDON:
            cause = {CAUSE_ANNOTATION: step.arguments["cause"]}
            metadata = {"uid": before["uid"], "annotations": cause}
            body = {"spec": {"unschedulable": True}, "metadata": metadata}
            self._ask(self._core.patch_node, before["node"], body)
            return f"{before['node']} is cordoned"
        delete, namespace = self._core.delete_namespaced_pod, self._settings.namespace
        for name, uid in before["pods"]:
            with contextlib.suppress(_GoneError):
                self._ask(delete, name, namespace, body={"preconditions": {"uid": uid}})
        return f"{len(before['pods'])} pods are deleted"

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:
        try:
            if step.verb == CORDON:
                node = self._node(step.target)
                if node.metadata.uid != before.get("uid", node.metadata.uid):
                    return None
                annotations = node.metadata.annotations or {}
                is_ours = annotations.get(CAUSE_ANNOTATION) == step.arguments["cause"]
                return bool(node.spec.unschedulable) and is_ours
            return not any(self._still_runs(name, uid) for name, uid in before["pods"])
        except (StepError, UncertainError):
            return None

    def _still_runs(self, name: str, uid: str) -> bool:
        try:
            pod = self._ask(self._core.read_namespaced_pod, name, self._settings.namespace)
        except _GoneError:
            return False
        return pod.metadata.uid == uid and pod.metadata.deletion_timestamp is None

    def _ask(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The answer of the API server.

        Raises:
            StepError: it refused; of these _GoneError.
            UncertainError: it did not answer, or failed.
        """
        import urllib3
        from kubernetes.client.exceptions import ApiException

        name = method.__name__
        try:
            return method(*arguments, **options, _request_timeout=self._timeout_s)
        except ApiException as error:
            text = f"{name}: HTTP {error.status} {error.reason}"
            if error.status in _GONE:
                raise _GoneError(text) from None
            raise (StepError if error.status in _REFUSED else UncertainError)(text) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UncertainError(f"{name}: {error}") from None


class _GoneError(StepError):
    """Raised when there is no such thing, or another one has its name."""


def _checked(name: str) -> str:
    """The name, which may be that of one node.

    Raises:
        StepError: no node can have it.
    """
    if not _NODE.fullmatch(host_name(name)):
        raise StepError(f"{shown(name)} is not the name of a node. Nothing was done")
    return name


def _phase(pod: Any) -> str:
    return "" if pod.status is None else str(pod.status.phase)


def _host(node: Any, runs: Mapping[str, set[str]] | None) -> SchedulerHost:
    return SchedulerHost(
        name=node.metadata.name,
        id=node.metadata.uid or "",
        is_cordoned=bool(node.spec.unschedulable),
        allocated_to=None if runs is None else tuple(sorted(runs.get(node.metadata.name, ()))),
    )


def _core(settings: KubernetesSettings) -> Any:
    try:
        from kubernetes import client, config
    except ImportError as error:
        msg = (
            "the executor kubernetes needs the package kubernetes, which is not installed. "
            "Install it with: pip install 'otel-straggler[kubernetes]'"
        )
        raise UnavailableError(msg) from error
    where, configuration = "kubernetes.kubeconfig", client.Configuration()
    try:
        if settings.kubeconfig:
            config.load_kube_config(settings.kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        expected = "a kubeconfig that can be read, or a pod with a service account"
        value = settings.kubeconfig
        raise ConfigError.of(where, value, expected, f"Check it ({error}).") from None
    configuration.retries = False
    return client.CoreV1Api(client.ApiClient(configuration))
