"""An API server of Kubernetes on loopback, with nodes and pods, as the client speaks to it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

_NODE = re.compile(r"/api/v1/nodes(?:/([\w.-]+))?")
_PODS = re.compile(r"/api/v1/namespaces/([\w.-]+)/pods(?:/([\w.-]+))?")


class Cluster:
    """Nodes and pods by name.

    Attributes:
        failing: status of every further answer; 0 for none.
        changes: (method, path) of requests that changed something.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {
            name: {"metadata": {"name": name, "uid": f"of-{name}", "annotations": {}}, "spec": {}}
            for name in ("n1", "n2")
        }
        self.pods: dict[str, Any] = {}
        self.failing = 0
        self.changes: list[tuple[str, str]] = []

    def add_pod(self, name: str, uid: str, node: str, run: str) -> None:
        self.pods[name] = {
            "metadata": {"name": name, "uid": uid, "labels": {"straggler/run": run}},
            "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        }

    def answer(self, method: str, path: str, query: str, body: Any) -> tuple[int, Any]:
        """Status and body."""
        if self.failing:
            return self.failing, {"message": "as the test says"}
        if node := _NODE.fullmatch(path):
            return self._node(method, path, node[1], query, body)
        if pods := _PODS.fullmatch(path):
            if pods[1] != "train":
                return 403, {"message": "forbidden"}
            return self._pod(method, path, pods[2], query, body)
        return 404, {"message": "not found"}

    def _node(
        self, method: str, path: str, name: str | None, query: str, body: Any
    ) -> tuple[int, Any]:
        if name is None:
            return 200, _page(list(self.nodes.values()), query)
        if name not in self.nodes:
            return 404, {"message": "not found"}
        node = self.nodes[name]
        if method == "PATCH":
            if body["metadata"]["uid"] != node["metadata"]["uid"]:
                return 422, {"message": "metadata.uid: field is immutable"}
            self.changes.append((method, path))
            node["spec"].update(body["spec"])
            node["metadata"]["annotations"].update(body["metadata"]["annotations"])
        return 200, node

    def _pod(
        self, method: str, path: str, name: str | None, query: str, body: Any
    ) -> tuple[int, Any]:
        if name is None:
            return 200, _page([pod for pod in self.pods.values() if _is_chosen(pod, query)], query)
        pod = self.pods.get(name)
        if pod is None:
            return 404, {"message": "not found"}
        if method == "DELETE":
            if body["preconditions"]["uid"] != pod["metadata"]["uid"]:
                return 409, {"message": "the UID in the precondition differs"}
            self.changes.append((method, path))
            del self.pods[name]
        return 200, pod


def _is_chosen(pod: Any, query: str) -> bool:
    asked = parse_qs(query)
    for each in asked.get("labelSelector", [""])[0].split(","):
        key, has_value, value = each.partition("=")
        labels = pod["metadata"]["labels"]
        if (labels.get(key) != value) if has_value else (key not in labels):
            return False
    key, _, value = asked.get("fieldSelector", ["spec.nodeName="])[0].partition("=")
    assert key == "spec.nodeName"
    return value in ("", pod["spec"]["nodeName"])


def _page(items: list[Any], query: str) -> dict[str, Any]:
    """As many of a list as are asked for, and where it goes on."""
    asked = parse_qs(query)
    begin, limit = int(asked.get("continue", ["0"])[0]), int(asked.get("limit", ["1000000"])[0])
    rest = begin + limit < len(items)
    metadata = {"continue": str(begin + limit)} if rest else {}
    return {"metadata": metadata, "items": items[begin : begin + limit]}


@contextmanager
def running_cluster(folder: Path) -> Iterator[tuple[Cluster, Path]]:
    """The cluster, and a kubeconfig for it."""
    cluster = Cluster()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            assert self.headers["Authorization"] == "Bearer a-token-of-the-test"
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            status, value = cluster.answer(self.command, parts.path, parts.query, body)
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(_kubeconfig(f"http://127.0.0.1:{server.server_port}")))
    try:
        yield cluster, path
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "a-token-of-the-test"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
