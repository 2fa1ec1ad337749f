"""The collector's address: argument, environment, the store of torch.distributed, this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler.client import discovery
from otel_straggler.client.discovery import STORE_KEY
from otel_straggler.client.settings import resolve_settings
from otel_straggler.config import DEFAULT_ENDPOINT, ClientSettings
from otel_straggler.errors import ConfigError
from otel_straggler.testing import CapturedRequests

ADDRESS = {"MASTER_ADDR": "node-0", "MASTER_PORT": "29400"}
THIS_MACHINE = f"{DEFAULT_ENDPOINT}/v1/traces"


class Store(dict[str, bytes]):
    """What the process group's default store can do."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def compare_set(self, key: str, _: str, value: str) -> bytes:
        return self.setdefault(key, value.encode())


class Job:
    """A job of two nodes whose ranks share a store; each call of `rank` is another process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: Any = Store()
        self._monkeypatch = monkeypatch

    def rank(self, rank: int, env: dict[str, str] | None = None, **given: Any) -> ClientSettings:
        torch = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: rank,
            get_world_size=lambda: 4,
            distributed_c10d=SimpleNamespace(_get_default_store=lambda: self.store),
        )
        self._monkeypatch.setitem(sys.modules, "torch.distributed", torch)
        return resolve_settings(given, ADDRESS | {"OTEL_STRAGGLER_RUN_ID": "run"} | (env or {}))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(discovery, "WAIT_S", 0.3)
    monkeypatch.setattr(discovery, "_scores", lambda _: False)
    return Job(monkeypatch)


@pytest.fixture
def scorer() -> Iterator[CapturedRequests]:
    with CapturedRequests() as sink:
        yield sink


def test_an_endpoint_of_rank_0_is_used_by_ranks_that_have_none(job: Job) -> None:
    """Spans and heartbeats go there, and all spans: rank 0 was given it by name."""
    job.rank(0, endpoint="http://collector:4318")
    result = job.rank(1)
    assert result.traces.url == "http://collector:4318/v1/traces"
    assert result.metrics.url == "http://collector:4318/v1/metrics"
    assert result.is_trusted


@pytest.mark.parametrize(
    ("env", "given", "url"),
    [
        ({}, "http://argument:1", "http://argument:1/v1/traces"),
        ({"OTEL_STRAGGLER_ENDPOINT": "http://own:2"}, None, "http://own:2/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://theirs:3"}, None, "http://theirs:3/v1/traces"),
        ({"OTEL_STRAGGLER_DISCOVERY": "off"}, None, THIS_MACHINE),
        ({}, None, "http://collector:4318/v1/traces"),
    ],
)
def test_argument_and_environment_come_before_the_store(
    job: Job, env: dict[str, str], given: str | None, url: str
) -> None:
    """And one variable turns the store off."""
    job.rank(0, endpoint="http://collector:4318")
    assert job.rank(1, env, endpoint=given).traces.url == url


def test_a_collector_at_the_rendezvous_host_is_found_and_shared(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody names it: rank 0 asks once for the whole job, and uses it, too."""
    asked = []
    monkeypatch.setattr(discovery, "_scores", lambda endpoint: asked.append(endpoint.url) or True)
    results = [job.rank(rank) for rank in range(3)]
    assert {result.traces.url for result in results} == {"http://node-0:4318/v1/traces"}
    assert asked == ["http://node-0:4318/v1/traces"]


def test_ranks_that_speak_grpc_share_an_address_for_it(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given by name, or found at the port for gRPC; who speaks HTTP does not use it."""
    pytest.importorskip(
        "grpc",
        reason="grpc is not installed: it would show that a collector is found over gRPC, too",
    )
    grpc = {"OTEL_STRAGGLER_PROTOCOL": "grpc"}
    job.rank(0, grpc, endpoint="http://collector:4317")
    for endpoint in (result := job.rank(1, grpc)).traces, result.metrics:
        assert (endpoint.url, endpoint.protocol) == ("http://collector:4317", "grpc")
    assert result.is_trusted
    assert job.rank(2).traces.url == THIS_MACHINE
    job.store.clear()
    monkeypatch.setattr(discovery, "_scores", lambda _: True)
    assert {job.rank(n, grpc).traces.url for n in range(2)} == {"http://node-0:4317"}


def test_without_any_collector_all_ranks_use_this_machine_and_do_not_wait(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 writes that there is none."""
    assert job.rank(0).traces.url == THIS_MACHINE
    monkeypatch.setattr(discovery, "WAIT_S", float("nan"))  # a deadline that never comes
    result = job.rank(1)
    assert (result.traces.url, result.is_trusted) == (THIS_MACHINE, False)


def test_a_rank_0_that_writes_nothing_is_not_waited_for_long(job: Job) -> None:
    """It may be switched off there."""
    assert job.rank(1).traces.url == THIS_MACHINE


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:4318", "http://localhost:4318", "http://me:pass@collector:4318"]
)
def test_an_address_that_others_cannot_use_or_must_not_read_is_not_shared(
    job: Job, endpoint: str
) -> None:
    """Loopback is another machine on another node; a password stays where it is."""
    job.rank(0, endpoint=endpoint)
    assert job.store[STORE_KEY] == b""


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://", "no url", "http://x/" + "x" * 600]
)
def test_what_is_no_address_in_the_store_is_not_used(job: Job, url: str) -> None:
    """Whoever wrote it."""
    job.store.set(STORE_KEY, url)
    assert job.rank(1).traces.url == THIS_MACHINE


def test_a_token_goes_only_to_a_host_that_was_named(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """The launcher names the rendezvous host; another one in the store could be anybody's."""
    token = {"OTEL_STRAGGLER_HEADERS": "authorization=Bearer%20s3cret"}
    job.store.set(STORE_KEY, "http://elsewhere:4318")
    assert job.rank(1, token).traces.url == THIS_MACHINE
    (warning,) = [r.getMessage() for r in caplog.records if "elsewhere" in r.getMessage()]
    assert "Set OTEL_STRAGGLER_ENDPOINT on all ranks" in warning
    assert "s3cret" not in warning
    job.store.set(STORE_KEY, "http://node-0:4318")
    assert job.rank(1, token).traces.url == "http://node-0:4318/v1/traces"


@pytest.mark.parametrize(
    "env",
    [
        {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
        {"SLURM_NNODES": "1"},
        {"OTEL_STRAGGLER_DISABLED": "1"},
    ],
)
def test_nothing_is_asked_where_it_is_of_no_use(job: Job, env: dict[str, str]) -> None:
    """One node, or nothing to send."""
    job.rank(0, env)
    assert STORE_KEY not in job.store


def test_a_store_that_cannot_do_it_changes_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of MPI, which has none."""
    monkeypatch.setattr(Store, "check", lambda *_: 1 / 0)
    assert job.rank(1).traces.url == THIS_MACHINE


def test_a_store_of_torch_keeps_the_address(job: Job) -> None:
    """The real calls, of which our stand-in is a copy."""
    torch = pytest.importorskip(
        "torch", reason="torch is not installed: torch's own store would show that these fit"
    )
    job.store = torch.distributed.HashStore()
    job.rank(0, endpoint="http://collector:4318")
    assert job.rank(1).traces.url == "http://collector:4318/v1/traces"


def test_a_wrong_word_for_the_switch_is_an_error() -> None:
    """It can only be meant for us."""
    with pytest.raises(ConfigError, match=r"OTEL_STRAGGLER_DISCOVERY: got 'no'.*on or off"):
        resolve_settings({}, {"OTEL_STRAGGLER_DISCOVERY": "no"})


def test_a_server_counts_only_if_it_says_that_it_scores(scorer: CapturedRequests) -> None:
    """Any OTLP receiver may listen at that port."""
    here = resolve_settings({"endpoint": scorer.url}, {}).traces
    assert discovery._scores(here)
    scorer.behaviour.is_scorer = False
    assert not discovery._scores(here)
    nobody = resolve_settings({"endpoint": "http://127.0.0.1:9"}, {}).traces
    assert not discovery._scores(nobody)


def test_a_server_says_so_over_grpc_too() -> None:
    pytest.importorskip(
        "grpc",
        reason="grpc is not installed: it would show that a collector is known over gRPC, too",
    )
    from .sinks import GrpcSink

    with GrpcSink() as sink:
        here = resolve_settings({"endpoint": sink.url, "protocol": "grpc"}, {}).traces
        assert discovery._scores(here)
        sink.behaviour.is_scorer = False
        assert not discovery._scores(here)
