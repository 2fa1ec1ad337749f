"""The collector of a job where no rank but rank 0 may know its address.

Order: argument > environment > the store of torch.distributed > this machine. The store counts only
where the process group is initialised before ``configure()`` and the run has several nodes: rank 0
writes the collector that it was given by name or, if it was given none, one that answers at port
4318 of MASTER_ADDR, and the other ranks read it. Rank 0 always writes something, so that nobody
waits for long.

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
_PORT: Final = 4318
_PATH: Final = "/v1/traces"


def discover_endpoints(endpoints: Endpoints, env: Mapping[str, str]) -> Endpoints:
    """The endpoints as given, or those that rank 0 wrote into the store if none was named.

    Never raises, and never takes longer than a second.
    """
    torch = initialised_process_group()
    if torch is None or _is_one_node(env) or not _is_plain_http(endpoints):
        return endpoints
    try:
        store = torch.distributed_c10d._get_default_store()  # noqa: SLF001
        if torch.get_rank() == 0:
            url = _url_to_share(endpoints, env)
            store.set(STORE_KEY, url)
        else:
            url = "" if _is_named(endpoints) else _shared_url(store)
    except Exception as error:  # noqa: BLE001  a store without these functions
        _LOG.info("no collector's address from %s: %s", WHERE, error)
        return endpoints
    return endpoints if _is_named(endpoints) else _with_url(endpoints, url, env)


def _is_one_node(env: Mapping[str, str]) -> bool:
    """Whether the launcher says so; then this machine's own address serves all."""
    local, world = (env.get(name, "").strip() for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    return (local != "" and local == world) or env.get("SLURM_NNODES", "").strip() == "1"


def _is_plain_http(endpoints: Endpoints) -> bool:
    """Whether something is sent, all of it as OTLP over HTTP."""
    used = [each for each in endpoints.by_signal.values() if each.is_enabled]
    return bool(used) and all(each.protocol == "http/protobuf" for each in used)


def _is_named(endpoints: Endpoints) -> bool:
    return any(endpoints.where.values())


def _url_to_share(endpoints: Endpoints, env: Mapping[str, str]) -> str:
    """What the other nodes can use; empty if there is nothing."""
    if endpoints.is_trusted:
        url = endpoints.traces.url.removesuffix(_PATH)
        is_open = not is_loopback_url(url) and urlsplit(url).username is None
        return url if is_open and len(url) <= _MAX_URL else ""
    host = env.get("MASTER_ADDR", "").strip()
    url = f"http://{bracketed(host)}:{_PORT}"
    if _is_named(endpoints) or not host or is_loopback_url(url):
        return ""
    return url if _scores(replace(endpoints.traces, url=url + _PATH, timeout_s=WAIT_S)) else ""


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


def _shared_url(store: Any) -> str:
    """Polled: a store that waits would make other threads wait for it, too."""
    deadline_s = time.monotonic() + WAIT_S
    while not store.check([STORE_KEY]):
        if time.monotonic() >= deadline_s:
            return ""
        time.sleep(_POLL_S)
    return bytes(store.get(STORE_KEY)).decode("utf-8", "replace")


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
    base = url.rstrip("/")
    return replace(
        endpoints,
        traces=replace(endpoints.traces, url=f"{base}/v1/traces"),
        metrics=replace(endpoints.metrics, url=f"{base}/v1/metrics"),
        is_trusted=True,
        where=dict.fromkeys(endpoints.where, WHERE),
    )
