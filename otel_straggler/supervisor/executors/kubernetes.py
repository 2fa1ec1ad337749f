"""Kubernetes: cordons nodes and deletes pods, which their Job or JobSet creates again elsewhere.

Needs the library ``kubernetes`` (extra ``kubernetes``), and rights to get, list and delete pods and
to get and patch nodes: examples/supervisor.yaml.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.setting import ANY_TEXT, option, text
from otel_straggler.supervisor.executors import StepError, UncertainError
from otel_straggler.supervisor.fleet import Decision
from otel_straggler.supervisor.policy import Action
from otel_straggler.supervisor.store import Step

CORDON: Final = "cordon"
DELETE_PODS: Final = "delete_pods"
CAUSE_ANNOTATION: Final = "otel-straggler/cause"
_RUN: Final = "{run_id}"
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NODE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
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

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        """In a restart in the job, and where a host is replaced, only the pods on that host are
        deleted: the other agents wait for them to come back."""
        steps = []
        if decision.action in ("cordon", "replace_host"):
            arguments = {"cause": decision.cause_id}
            steps.append(Step(verb=CORDON, target=_node(decision), arguments=arguments))
        runs_there = decision.action == "replace_host" and decision.run_id
        if runs_there or decision.action == "restart_in_job":
            steps.append(self._deletion(decision, _node(decision)))
        if decision.action == "restart_workload":
            steps.append(self._deletion(decision, ""))
        return tuple(steps)

    def _deletion(self, decision: Decision, node: str) -> Step:
        if not _LABEL.fullmatch(decision.run_id):
            raise StepError(f"the run {decision.run_id!r:.80} cannot be the value of a label")
        selector = self._settings.pod_selector.replace(_RUN, decision.run_id)
        arguments = {"selector": selector, "node": node}
        return Step(verb=DELETE_PODS, target=decision.run_id, arguments=arguments)

    def observe(self, step: Step) -> dict[str, Any]:
        if step.verb != DELETE_PODS:
            return {}
        node = step.arguments["node"]
        chosen = {"label_selector": step.arguments["selector"]}
        if node:
            chosen["field_selector"] = f"spec.nodeName={node}"
        namespace = self._settings.namespace
        pods = self._ask(self._core.list_namespaced_pod, namespace, **chosen).items
        if not pods and not node:
            raise StepError(f"no pod has the labels {step.arguments['selector']}")
        return {"pods": [[pod.metadata.name, pod.metadata.uid] for pod in pods]}

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        if step.verb == CORDON:
            cause = {CAUSE_ANNOTATION: step.arguments["cause"]}
            body = {"spec": {"unschedulable": True}, "metadata": {"annotations": cause}}
            self._ask(self._core.patch_node, step.target, body)
            return f"{step.target} is cordoned"
        delete, namespace = self._core.delete_namespaced_pod, self._settings.namespace
        for name, uid in before["pods"]:
            with contextlib.suppress(_GoneError):
                self._ask(delete, name, namespace, body={"preconditions": {"uid": uid}})
        return f"{len(before['pods'])} pods are deleted"

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:
        try:
            if step.verb == CORDON:
                node = self._ask(self._core.read_node, step.target)
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


def _node(decision: Decision) -> str:
    if not _NODE.fullmatch(decision.host):
        raise StepError(f"{decision.host!r:.80} is not the name of a node")
    return decision.host


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
