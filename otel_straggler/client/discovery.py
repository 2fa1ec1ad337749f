"""The collector of a job where no rank but rank 0 may know its address.

Order: argument > environment > the store of torch.distributed > this machine. The store counts only
where the run has several nodes: once the process group is initialised, rank 0 writes the collector
that it was given by name or, if it was given none, one that answers at MASTER_ADDR, at the port of
its protocol, and the other ranks read it. Rank 0 always writes something, so that nobody waits for
long. Ranks that speak gRPC have a key of their own.

A token goes only to a host that the user or the launcher named, because whoever reaches the store
could write another address into it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from otel_straggler import semconv
from otel_straggler.client.endpoints import Endpoints, is_loopback_url, is_url
from otel_straggler.client.identity import initialised_process_group
from otel_straggler.config import Endpoint
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients.addresses import bracketed
from otel_straggler.secret import without_secrets

_LOG = logging.getLogger("otel_straggler")
STORE_KEY: Final = "otel_straggler/endpoint"
WHERE: Final = "the store of torch.distributed"
WAIT_S: Final = 0.5
"""Of a rank for rank 0's word, and of rank 0 for an answer of MASTER_ADDR."""
_POLL_S: Final = 0.02
_MAX_URL: Final = 500
_PORTS: Final[dict[str, int]] = {"http/protobuf": 4318, "grpc": 4317}
_PATHS: Final[dict[str, tuple[str, str]]] = {
    "http/protobuf": ("/v1/traces", "/v1/metrics"),
    "grpc": ("", ""),
}
"""Of traces and metrics, after the base URL."""


def discover_endpoints(endpoints: Endpoints, env: Mapping[str, str]) -> Endpoints:
    """The endpoints as given, or those that rank 0 wrote into the store if none was named.

    Never raises, and never takes longer than a second.
    """
    torch = initialised_process_group()
    if torch is None or _is_one_node(env) or not _protocol_of(endpoints):
        return endpoints
    key = f"{STORE_KEY}/grpc" if _protocol_of(endpoints) == "grpc" else STORE_KEY
    try:
        store = torch.distributed_c10d._get_default_store()  # noqa: SLF001
        if torch.get_rank() == 0:
            url = _url_to_share(endpoints, env)
            store.set(key, url)
        else:
            url = "" if _is_named(endpoints) else _shared_url(store, key)
    except Exception as error:  # noqa: BLE001  a store without these functions
        _LOG.info("no collector's address from %s: %s", WHERE, error)
        return endpoints
    return endpoints if _is_named(endpoints) else _with_url(endpoints, url, env)


def may_be_shared_later(endpoints: Endpoints, rank: int, env: Mapping[str, str]) -> bool:
    """Whether to look again once the process group is initialised: rank 0 has an address for the
    others, or this rank was given none."""
    if _is_one_node(env) or not _protocol_of(endpoints):
        return False
    if _is_named(endpoints):
        return rank == 0 and endpoints.is_trusted and bool(_url_to_share(endpoints, env))
    return True


def _is_one_node(env: Mapping[str, str]) -> bool:
    """Whether the launcher says so; then this machine's own address serves all."""
    local, world = (env.get(name, "").strip() for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    return (local != "" and local == world) or env.get("SLURM_NNODES", "").strip() == "1"


def _protocol_of(endpoints: Endpoints) -> str:
    """In which all is sent; empty if nothing is, or each signal in another one."""
    used = {each.protocol for each in endpoints.by_signal.values() if each.is_enabled}
    return used.pop() if len(used) == 1 else ""


def _is_named(endpoints: Endpoints) -> bool:
    return any(endpoints.where.values())


def _url_to_share(endpoints: Endpoints, env: Mapping[str, str]) -> str:
    """What the other nodes can use; empty if there is nothing."""
    protocol = _protocol_of(endpoints)
    path = _PATHS[protocol][0]
    if endpoints.is_trusted:
        url = endpoints.traces.url.removesuffix(path)
        is_open = not is_loopback_url(url) and urlsplit(url).username is None
        return url if is_open and len(url) <= _MAX_URL else ""
    host = env.get("MASTER_ADDR", "").strip()
    url = f"http://{bracketed(host)}:{_PORTS[protocol]}"
    if _is_named(endpoints) or not host or is_loopback_url(url):
        return ""
    return url if _scores(replace(endpoints.traces, url=url + path, timeout_s=WAIT_S)) else ""


def _scores(endpoint: Endpoint) -> bool:
    """Whether a collector that scores answers there within ``WAIT_S``, its name looked up, too."""
    answers: list[bool] = []

    def ask() -> None:
        from otel_straggler.otlp.clients.client import client_for

        try:
            client = client_for(endpoint, "traces")
            response = client.post(b"", content_type="application/x-protobuf")
            client.close()
        except (OSError, ConfigError):
            return
        answers.append(semconv.SCORER_HEADER in response.headers)

    thread = threading.Thread(target=ask, name="otel-straggler-discovery", daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return any(answers)


def _shared_url(store: Any, key: str) -> str:
    """Polled: a store that waits would make other threads wait for it, too."""
    deadline_s = time.monotonic() + WAIT_S
    while not store.check([key]):
        if time.monotonic() >= deadline_s:
            return ""
        time.sleep(_POLL_S)
    return bytes(store.get(key)).decode("utf-8", "replace")


def _with_url(endpoints: Endpoints, url: str, env: Mapping[str, str]) -> Endpoints:
    """A collector that scores, by the word of rank 0."""
    if not url or len(url) > _MAX_URL or not is_url(url):
        return endpoints
    has_headers = any(each.headers for each in endpoints.by_signal.values())
    if has_headers and urlsplit(url).hostname != env.get("MASTER_ADDR", "").strip().lower():
        _LOG.warning(
            "%s names a collector at %s, but the token in the headers goes only to hosts that are "
            "named here or by MASTER_ADDR. Set OTEL_STRAGGLER_ENDPOINT on all ranks.",
            WHERE,
            without_secrets(url),
        )
        return endpoints
    base, (traces, metrics) = url.rstrip("/"), _PATHS[_protocol_of(endpoints)]
    return replace(
        endpoints,
        traces=replace(endpoints.traces, url=base + traces),
        metrics=replace(endpoints.metrics, url=base + metrics),
        is_trusted=True,
        where=dict.fromkeys(endpoints.where, WHERE),
    )
