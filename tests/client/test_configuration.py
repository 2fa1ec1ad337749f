"""Where settings come from, and what a wrong one says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.client import identity
from otel_straggler.client.settings import resolve_settings
from otel_straggler.client.topology import Topology, resource_attributes
from otel_straggler.config import DEFAULT_ENDPOINT, ClientSettings
from otel_straggler.errors import ConfigError


def settings(env: dict[str, str] | None = None, **given: Any) -> ClientSettings:
    return resolve_settings(given, env or {})


def test_an_argument_beats_our_variable_beats_theirs() -> None:
    """For every setting alike."""
    env = {"OTEL_SERVICE_NAME": "theirs", "OTEL_RESOURCE_ATTRIBUTES": "service.name=last"}
    ours = {**env, "OTEL_STRAGGLER_SERVICE_NAME": "ours"}
    assert settings(ours, service_name="said").service_name == "said"
    assert settings(ours).service_name == "ours"
    assert settings(env).service_name == "theirs"
    assert settings({"OTEL_RESOURCE_ATTRIBUTES": "service.name=last"}).service_name == "last"


@pytest.mark.parametrize(
    ("env", "given", "url", "is_trusted"),
    [
        ({}, None, f"{DEFAULT_ENDPOINT}/v1/traces", False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:1/x/"}, None, "http://b:1/x/v1/traces", False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:2/t"}, None, "http://c:2/t", False),
        ({"OTEL_STRAGGLER_ENDPOINT": "https://d"}, None, "https://d/v1/traces", True),
        ({"OTEL_STRAGGLER_ENDPOINT": "http://d"}, "http://e:4", "http://e:4/v1/traces", True),
    ],
)
def test_the_endpoint_is_found_in_order(
    env: dict[str, str], given: str | None, url: str, is_trusted: bool
) -> None:
    """Only a name given to us is trusted to be a scorer."""
    env.setdefault("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:1/x/") if "TRACES" in str(env) else None
    result = settings(env, endpoint=given)
    assert (result.traces.url, result.is_trusted) == (url, is_trusted)


def test_the_exporter_variables_are_honoured() -> None:
    """A signal's own variable beats the common one."""
    result = settings(
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20a,x-b=1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-b=2",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION": "none",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/me.pem",
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/me.key",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_METRIC_EXPORT_INTERVAL": "10000",
        }
    )
    assert dict(result.traces.headers) == {"authorization": "Bearer a", "x-b": "2"}
    assert dict(result.metrics.headers) == {"authorization": "Bearer a", "x-b": "1"}
    assert (result.traces.timeout_s, result.metrics.timeout_s) == (2.5, 0.5)
    assert (result.traces.compression, result.metrics.compression) == ("gzip", "none")
    assert result.traces.ca_file == "/ca.pem"
    assert (result.traces.client_cert_file, result.traces.client_key_file) == ("/me.pem", "/me.key")
    assert (result.traces.is_enabled, result.metrics.is_enabled) == (True, False)
    assert result.histogram_s == 10.0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "lzma"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
    ],
)
def test_a_wrong_variable_of_others_is_ignored_with_a_warning(
    variable: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be meant for another program."""
    result = settings({variable: value})
    assert result.traces == settings().traces
    assert all(variable in r.getMessage() and value in r.getMessage() for r in caplog.records)
    assert caplog.records


@pytest.mark.parametrize("variable", ["OTEL_SDK_DISABLED", "OTEL_STRAGGLER_DISABLED"])
def test_one_variable_switches_everything_off(variable: str) -> None:
    """Ours, or OpenTelemetry's."""
    assert settings({variable: "true"}).is_disabled
    assert not settings({variable: "false"}).is_disabled


def test_resource_attributes_are_decoded() -> None:
    """Values are percent-encoded by OpenTelemetry's specification."""
    result = settings({"OTEL_RESOURCE_ATTRIBUTES": "team=a%2Cb,host.name=n1"})
    assert dict(result.resource) == {"team": "a,b", "host.name": "n1"}
    assert result.node == "n1"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"endpoint": "localhost:4318"}, "a URL that begins with http"),
        ({"endpoint": "http://x:port"}, "a URL that begins with http"),
        ({"endpoint": 4318}, "a URL that begins with http"),
        ({"headers": {"a": "b\nc"}}, "texts by name"),
        ({"headers": "a=b"}, "texts by name"),
        ({"rank": -1}, "a whole number from 0"),
        ({"rank": "0"}, "a whole number from 0"),
        ({"rank": True}, "a whole number from 0"),
        ({"rank": 8, "world_size": 8}, "a rank below the world size of 8"),
        ({"world_size": 0}, "a whole number from 1"),
        ({"local_rank": 1.5}, "a whole number from 0"),
        ({"heartbeat_s": 0}, "seconds above 0"),
        ({"heartbeat_s": float("nan")}, "seconds above 0"),
        ({"flush_s": "1"}, "seconds above 0"),
        ({"exit_deadline_s": -1}, "seconds above 0"),
        ({"queue_bytes": 0}, "a whole number from 1"),
        ({"sample_steps": 0}, "a whole number from 1"),
        ({"span_budget": -1}, "a whole number from 0"),
        ({"run_id": 7}, "a text"),
        ({"group": 7}, "a text"),
        ({"role": 7}, "a text"),
        ({"page": "no"}, "True or False"),
        ({"team": 7}, "a text"),
        ({"service_name": 7}, "a text"),
        ({"strict": 1}, "True or False"),
        ({"handle_sigterm": None}, "True or False"),
    ],
)
def test_a_wrong_argument_says_place_value_expectation_and_remedy(
    given: dict[str, Any], expected: str
) -> None:
    """At once, before any training time is spent."""
    name = next(iter(given))
    with pytest.raises(ConfigError, match=re.escape(expected)) as caught:
        settings(**given)
    message = str(caught.value)
    assert message.startswith(f"configure({name}=...): got ")
    assert re.search(r"\. [A-Z][^.]*.*\.$", message)


def test_a_wrong_header_value_is_not_shown() -> None:
    """It may be a token."""
    with pytest.raises(ConfigError) as caught:
        settings(headers={"authorization": "Bearer s3cret\n"})
    assert "s3cret" not in str(caught.value)
    assert "authorization" in str(caught.value)


@pytest.mark.parametrize(
    ("env", "where"),
    [
        ({"OTEL_STRAGGLER_ENDPOINT": "grpc://x"}, "OTEL_STRAGGLER_ENDPOINT: got 'grpc://x'"),
        ({"OTEL_STRAGGLER_HEARTBEAT_S": "often"}, "OTEL_STRAGGLER_HEARTBEAT_S: got 'often'"),
        ({"OTEL_STRAGGLER_PAGE": "nobody"}, "OTEL_STRAGGLER_PAGE: got 'nobody'"),
        ({"OTEL_STRAGGLER_HEADERS": "a=1,s3cret"}, 'OTEL_STRAGGLER_HEADERS: got "a part without'),
    ],
)
def test_a_wrong_variable_of_ours_is_an_error(env: dict[str, str], where: str) -> None:
    """It can only be meant for us."""
    with pytest.raises(ConfigError, match=re.escape(where)):
        settings(env)


@pytest.mark.parametrize(
    ("env", "given", "sent"),
    [
        ({}, {}, {}),
        ({"OTEL_STRAGGLER_PAGE": "False"}, {}, {semconv.RUN_PAGE: False}),
        ({"OTEL_STRAGGLER_PAGE": "false"}, {"page": True}, {semconv.RUN_PAGE: True}),
        ({"OTEL_STRAGGLER_TEAM": "vision"}, {}, {semconv.TEAM: "vision"}),
        ({"OTEL_STRAGGLER_TEAM": "vision"}, {"team": "speech"}, {semconv.TEAM: "speech"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "training.run.page=false,training.team=vision"},
            {},
            {semconv.RUN_PAGE: "false", semconv.TEAM: "vision"},
        ),
    ],
)
def test_who_is_called_for_a_run_is_on_the_resource(
    env: dict[str, str], given: dict[str, Any], sent: dict[str, Any]
) -> None:
    """Only where somebody says it; an argument wins over the variable."""
    result = resource_attributes(settings(env, **given), "session", Topology())
    assert {k: v for k, v in result.items() if k in {semconv.RUN_PAGE, semconv.TEAM}} == sent


@pytest.mark.parametrize(
    ("env", "index"),
    [
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (5, 8, 1)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1)),
        ({"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (5, 8, -1)),
        ({}, (0, 1, -1)),
    ],
)
def test_the_launcher_says_which_rank_it_is(
    env: dict[str, str], index: tuple[int, int, int]
) -> None:
    """torchrun's variables, then Slurm's; a process alone is rank 0 of 1."""
    result = settings(env)
    assert (result.rank, result.world_size, result.local_rank) == index


def test_a_restart_counts_as_an_attempt() -> None:
    """Of the same run."""
    env = {"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": "2"}
    assert (settings(env).run_id, settings(env).attempt) == ("r", 2)


@pytest.mark.parametrize(
    ("env", "run_id"),
    [
        ({"OTEL_STRAGGLER_RUN_ID": "x", "SLURM_JOB_ID": "7"}, "x"),
        ({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "r"}, "slurm-7"),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, "slurm-7-2"),
        ({"RAY_JOB_ID": "01"}, "ray-01"),
        ({"TORCHELASTIC_RUN_ID": "r"}, "r"),
    ],
)
def test_the_run_is_named_by_whoever_started_it(env: dict[str, str], run_id: str) -> None:
    """Argument, variable, scheduler, launcher."""
    assert settings(env).run_id == run_id
    assert settings(env, run_id="said").run_id == "said"


def test_ranks_of_one_launcher_share_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same rendezvous, same parent; another launcher at the same address is another run."""
    env = {
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "none",
    }
    first = settings({**env, "RANK": "0"}).run_id
    assert settings({**env, "RANK": "1"}).run_id == first
    monkeypatch.setattr(identity, "_start_of_parent", lambda: "later")
    assert settings({**env, "RANK": "0"}).run_id != first


def test_a_launcher_per_node_cannot_name_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """Its start differs from node to node, so only the address is used, and that is told."""
    env = {"MASTER_ADDR": "a", "MASTER_PORT": "1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}
    assert settings({**env, "RANK": "0"}).run_id.startswith("run-")
    assert "OTEL_STRAGGLER_RUN_ID" in caplog.text


def test_torch_distributed_is_asked_once_it_is_initialised() -> None:
    """Rank and size from the process group, the run's name from a token in its store."""
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        first = settings()
        assert (first.rank, first.world_size) == (0, 1)
        assert first.run_id == settings().run_id
        token = distributed.distributed_c10d._get_default_store().get("otel_straggler/run_id")
        assert token.decode() == first.run_id
    finally:
        distributed.destroy_process_group()
