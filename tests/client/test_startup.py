"""The first moments: the line that rank 0 prints, names of runs, and configure() before
init_process_group(). Processes of their own, with a light stand-in for torch.distributed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.client import start_line as start_line_module
from otel_straggler.client.gpu.reasons import NOT_CONFIGURED
from otel_straggler.client.identity import find_run_id
from otel_straggler.client.run_names import new_run_name
from otel_straggler.client.start_line import start_line
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.otlp.clients.client import Response
from otel_straggler.testing import CapturedRequests

BOUND_S = 60
FREE = "127.0.0.1:0"
HEAD = """
import os, sys, time, types
url = sys.argv[1]
class Store(dict):
    def compare_set(self, key, _, own): return self.setdefault(key, own).encode()
    def check(self, keys): return all(key in self for key in keys)
    def set(self, key, value): self[key] = value
store = Store({"otel_straggler/run_id": "of-the-store"})
dist = types.ModuleType("torch.distributed")
dist.__dict__.update(
    is_available=lambda: True, is_initialized=lambda: False,
    get_rank=lambda: 2, get_world_size=lambda: 4,
    distributed_c10d=types.SimpleNamespace(_get_default_store=lambda: store),
)
def init_process_group(): dist.is_initialized = lambda: True
torch = types.ModuleType("torch")
torch.distributed = dist
sys.modules.update({"torch": torch, "torch.distributed": dist})
import otel_straggler as ots
def configure(**more):
    return ots.configure(**{"endpoint": url, "flush_s": 0.05, "heartbeat_s": 0.1, **more})
"""


def run(body: str, url: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(body), url],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
        env={
            "PATH": "/usr/bin:/bin",
            "OTEL_STRAGGLER_EXIT_DEADLINE_S": "20",
            "OTEL_STRAGGLER_COLLECTIVES": "off",  # the stand-in has none
            **env,
        },
    )


def who(resource: dict[str, Any]) -> tuple[Any, ...]:
    names = (semconv.RUN_ID, semconv.RANK, semconv.WORLD_SIZE)
    return tuple(resource[name] for name in names)


LATE = ("of-the-store", 2, 4)


@pytest.fixture(params=["auto", "off"])
def env(request: pytest.FixtureRequest) -> dict[str, str]:
    """With the recorder in C++, and with that in Python."""
    return {"OTEL_STRAGGLER_NATIVE": request.param}


def test_what_is_recorded_before_the_process_group_is_sent_under_its_rank(
    sink: CapturedRequests, env: dict[str, str]
) -> None:
    """Nothing of it ever went out as rank 0 of 1."""
    body = """
    configure()
    with ots.section("load the model"): time.sleep(0.3)
    init_process_group()
    with ots.step(0), ots.section("forward"): pass
    ots.shutdown()
    """
    run(body, sink.url, **env)
    spans = sink.spans()
    assert {span.name for span in spans} == {"load the model", "forward", "step"}
    assert {who(span.resource) for span in spans} == {LATE}
    assert {who(p.resource) for p in sink.points(semconv.HEARTBEAT)} == {LATE}


def test_a_program_that_steps_without_a_process_group_is_alone(sink: CapturedRequests) -> None:
    """It is sent at once, as rank 0 of 1."""
    body = """
    configure()
    ots.step(0)
    until_s = time.monotonic() + 20
    while not ots.configure.__globals__["_PROCESS"].session.is_sending:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    ots.shutdown()
    """
    run(body, sink.url)
    ((_, rank, world),) = {who(span.resource) for span in sink.spans()}
    assert (rank, world) == (0, 1)


def test_a_rank_that_is_known_later_than_it_was_sent_begins_again(
    sink: CapturedRequests, env: dict[str, str]
) -> None:
    """What was sent before has ended; a second configure() is no contradiction."""
    body = """
    session = configure()
    with ots.section("alone"): pass
    ots.flush()
    init_process_group()
    configure()
    with ots.step(0), ots.section("forward"): pass
    ots.shutdown()
    assert session.settings.rank == 2
    """
    run(body, sink.url, **env)
    by_name = {span.name: who(span.resource) for span in sink.spans()}
    assert by_name["forward"] == LATE
    assert by_name["alone"][1:] == (0, 1)
    ends = {who(p.resource): p.attributes["outcome"] for p in sink.points(semconv.RANK_FINISHED)}
    assert ends == {by_name["alone"]: "ok", LATE: "ok"}


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none"}
LAUNCHED = {"RANK": "2", "WORLD_SIZE": "4", "OTEL_STRAGGLER_RUN_ID": "r", **TORCHRUN}
POD = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "OTEL_STRAGGLER_RUN_ID": "r"}
"""Variables of a pod that starts two processes: both see the same."""


def test_a_rank_of_torchelastic_is_never_read_again(sink: CapturedRequests) -> None:
    """It is sent at once: it sets the variables for each process."""
    body = """
    configure(run_id="r")
    assert ots.configure.__globals__["_PROCESS"].session.is_sending
    init_process_group()
    ots.shutdown()
    """
    run(body, sink.url, RANK="1", WORLD_SIZE="8", **TORCHRUN)
    assert {who(p.resource) for p in sink.points(semconv.HEARTBEAT)} == {("r", 1, 8)}


@pytest.mark.parametrize(
    "first", ["configure(); init_process_group()", "init_process_group(); configure()"]
)
def test_the_process_group_knows_the_rank_better_than_variables_of_a_pod(
    sink: CapturedRequests, env: dict[str, str], first: str
) -> None:
    """Whichever comes first, nothing goes out under the pod's rank, and one line says so; the pod's
    local rank is not used either."""
    body = f"""
    {first}
    with ots.step(0), ots.section("forward"): pass
    ots.shutdown()
    """
    result = run(body, sink.url, **env, **POD)
    assert {who(span.resource) for span in sink.spans()} == {("r", 2, 4)}
    assert {who(p.resource) for p in sink.points(semconv.HEARTBEAT)} == {("r", 2, 4)}
    assert not any(semconv.LOCAL_RANK in span.resource for span in sink.spans())
    (line,) = [line for line in result.stderr.splitlines() if "RANK" in line]
    assert line == (
        "otel-straggler: RANK is 1 and WORLD_SIZE is 2, but this process is rank 2 of 4 of its "
        "process group, which is used: the variables seem to be those of a pod or a task that "
        "starts several processes"
    )


def test_slurms_rank_of_a_node_is_no_news_where_torchrun_names_that_of_the_process(
    sink: CapturedRequests,
) -> None:
    """One task for each node, which starts torchrun: as usual."""
    body = """
    init_process_group()
    configure(run_id="r")
    ots.shutdown()
    """
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert run(body, sink.url, RANK="2", WORLD_SIZE="4", **slurm, **TORCHRUN).stderr == ""


def test_a_collector_that_rank_0_shares_later_gets_what_was_recorded_before(
    sink: CapturedRequests, env: dict[str, str]
) -> None:
    """The launcher names the rank, and nobody a collector until the process group is there."""
    body = """
    configure(endpoint=None)
    with ots.section("load the model"): time.sleep(0.1)
    store["otel_straggler/endpoint"] = url.encode()
    init_process_group()
    with ots.step(0), ots.section("forward"): pass
    ots.shutdown()
    """
    run(body, sink.url, **env, **LAUNCHED)
    assert {span.name for span in sink.spans()} == {"load the model", "forward", "step"}
    assert {who(p.resource) for p in sink.points(semconv.HEARTBEAT)} == {("r", 2, 4)}


def test_rank_0_sends_at_once_and_shares_its_collector_when_there_is_a_store() -> None:
    """It was given one by name, which other machines can use."""
    body = """
    dist.get_rank = lambda: 0
    session = configure()
    assert session.is_sending
    init_process_group()
    until_s = time.monotonic() + 20
    while "otel_straggler/endpoint" not in store:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    assert store["otel_straggler/endpoint"] == url
    ots.shutdown()
    """
    deadline = {"OTEL_STRAGGLER_EXIT_DEADLINE_S": "0.1"}
    run(body, "http://collector.invalid:4318", **LAUNCHED | {"RANK": "0"}, **deadline)


# --- the line ------------------------------------------------------------------------------------


def test_rank_0_prints_where_to_watch(sink: CapturedRequests) -> None:
    """Without any logging set up, on standard error, once."""
    sink.behaviour.is_scorer = True
    sink.behaviour.headers[semconv.PAGE_HEADER] = "http://:9999/"
    body = """
    configure(run_id="my run")
    until_s = time.monotonic() + 20
    while "-start" in str([t.name for t in __import__("threading").enumerate()]):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    ots.shutdown()
    """
    result = run(body, sink.url, RANK="0", WORLD_SIZE="4", **TORCHRUN)
    assert result.stderr == (
        "otel-straggler: run my run, rank 0 of 4, GPU timing off: watch it at "
        "http://127.0.0.1:9999/#run=my%20run\n"
    )
    assert run(body, sink.url, RANK="1", WORLD_SIZE="4", **TORCHRUN).stderr == ""
    assert run(body, sink.url, RANK="0", OTEL_SDK_DISABLED="true").stderr == ""


SETTINGS = ClientSettings(
    run_id="r",
    rank=0,
    world_size=4,
    traces=Endpoint(url="http://node-7:4318/v1/traces"),
    metrics=Endpoint(url="http://node-7:4318/v1/metrics"),
)
SCORER = {semconv.SCORER_HEADER: "1"}


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (Response(405, SCORER), "watch it at http://node-7:9464/#run=r"),
        (
            Response(405, {**SCORER, semconv.PAGE_HEADER: "https://watch.example/x/"}),
            "watch it at https://watch.example/x/#run=r",
        ),
        (Response(0, error="Connection refused"), "nobody listens at http://node-7:4318. Start"),
        (Response(0, error="timed out"), "no answer from http://node-7:4318 (timed out). Is"),
        (Response(500), "http://node-7:4318 answers 500; 'otel-straggler doctor' says"),
        (Response(401, SCORER), "answers 401: it wants a token that may send, or another one"),
        (Response(200), "answers, but not as an otel-straggler collector"),
        (None, "spans go to the application's TracerProvider"),
    ],
)
def test_the_line_says_who_listens(response: Response | None, text: str) -> None:
    assert text in start_line(SETTINGS, response, NOT_CONFIGURED)


@pytest.mark.parametrize(
    "page",
    ["http://[::1", "javascript:alert(1)", "file:///etc/passwd", "\x1b[2Jhttp://x", "", "//",
     "x" * 60_000, "http://x\x1b[2J\u202e/", "http://x/\r\nforged: line",
     f"http://{'x' * 60_000}/"],
    ids=lambda page: repr(page[:20]),
)  # fmt: skip
def test_a_collector_writes_one_line_of_text_into_the_log_of_rank_0(page: str) -> None:
    """Whatever it names as the address of its page, or as the reason of an error."""
    for response in (Response(405, {**SCORER, semconv.PAGE_HEADER: page}), Response(0, error=page)):
        line = start_line(SETTINGS, response, NOT_CONFIGURED)
        assert line.isprintable()
        assert len(line) <= 1_000
        assert "javascript" not in line or response.status == 0


def line_of(url: str, protocol: Any = "http/protobuf") -> str:
    """What rank 0 says of an endpoint, by asking it."""
    endpoint = Endpoint(url=url, protocol=protocol)
    settings = replace(SETTINGS, traces=endpoint, metrics=endpoint)
    return start_line(settings, start_line_module._ask(settings), NOT_CONFIGURED)


@pytest.fixture(scope="module")
def collector() -> Iterator[dict[str, str]]:
    """Addresses of a real one; without what that needs, this was not tried."""
    for name in ("httptools", "h2"):
        pytest.importorskip(name)
    running = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
        )
    )
    try:
        yield running.start()
    finally:
        running.stop()


def test_the_address_of_the_page_is_said_to_be_none_for_data(collector: dict[str, str]) -> None:
    """It answers like a collector, and takes nothing."""
    page = f"http://{collector['metrics']}"
    line = line_of(f"{page}/v1/traces")
    assert f"{page} is the address of a collector's page and metrics, and takes no data" in line
    assert "OTEL_STRAGGLER_ENDPOINT=http://127.0.0.1:4318" in line
    assert "watch it at" not in line
    assert "watch it at" in line_of(f"http://{collector['otlp_http']}/v1/traces")


def test_the_port_of_grpc_is_named_where_http_was_spoken_to_it(
    collector: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its number, as nothing else tells; also the other way round."""
    port = int(collector["otlp_grpc"].rpartition(":")[2])
    monkeypatch.setattr(start_line_module, "_OTLP_PORTS", {"http/protobuf": 4318, "grpc": port})
    line = line_of(f"http://{collector['otlp_grpc']}/v1/traces")
    assert f"does not speak HTTP: port {port} is that of OTLP over gRPC. Name the port of" in line
    assert "OTEL_STRAGGLER_PROTOCOL=grpc" in line
    monkeypatch.undo()  # at any other port the answer tells
    line = line_of(f"http://{collector['otlp_grpc']}/v1/traces")
    assert "does not speak HTTP: it answers as OTLP over gRPC does. Name the port of HTTP" in line
    refused = Response(0, error="failed to connect")
    settings = replace(SETTINGS, traces=Endpoint(url="http://node-7:4318", protocol="grpc"))
    line = start_line(settings, refused, NOT_CONFIGURED)
    assert "does not speak gRPC: port 4318 is that of OTLP over HTTP" in line


def test_a_name_that_has_no_address_is_said_to_have_none() -> None:
    """Reserved by RFC 6761 for never having one; "nobody listens" would send people to a host."""
    line = line_of("http://collector.invalid:4318/v1/traces")
    assert "the name collector.invalid has no address here" in line
    assert "'getent hosts collector.invalid'" in line
    assert "nobody listens" not in line


def test_a_misspelled_variable_is_one_warning_with_the_right_name(sink: CapturedRequests) -> None:
    """On rank 0; what Kubernetes sets for a Service of the same name is no misspelling."""
    sink.behaviour.is_scorer = True
    body = """
    configure(run_id="r")
    until_s = time.monotonic() + 20
    while "-start" in str([t.name for t in __import__("threading").enumerate()]):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    ots.shutdown()
    """
    env = {
        "OTEL_STRAGGLER_ENDPIONT": "http://a",
        "OTEL_STRAGGLER_QQQ": "1",
        "OTEL_STRAGGLER_SERVICE_HOST": "10.0.0.1",
        "OTEL_STRAGGLER_COLLECTOR_PORT_4318_TCP_ADDR": "10.0.0.1",
    }
    env |= TORCHRUN
    lines = run(body, sink.url, RANK="0", WORLD_SIZE="4", **env).stderr.splitlines()
    assert [line for line in lines if "nothing reads it" in line] == [
        f"otel-straggler: OTEL_STRAGGLER_{name} is set, and nothing reads it. {remedy}"
        for name, remedy in (
            ("ENDPIONT", "Did you mean OTEL_STRAGGLER_ENDPOINT?"),
            ("QQQ", "Correct the spelling, or unset it."),
        )
    ]
    assert run(body, sink.url, RANK="1", WORLD_SIZE="4", **env).stderr == ""


# --- a forgotten configure() ---------------------------------------------------------------------

LOOP = """
for n in range(50):
    with ots.step(n), ots.section("forward"): pass
"""


def test_a_forgotten_configure_is_one_warning(sink: CapturedRequests) -> None:
    warned = run(LOOP, sink.url).stderr
    assert warned.count("configure() was not called") == 1


@pytest.mark.parametrize(
    ("first", "env"),
    [
        ("", {"OTEL_SDK_DISABLED": "true"}),
        ("", {"OTEL_STRAGGLER_DISABLED": "1"}),
        ("configure(rank=1, world_size=2); ots.shutdown()", {}),
    ],
    ids=["sdk disabled", "disabled", "after shutdown"],
)
def test_no_warning_where_nobody_wants_records(
    sink: CapturedRequests, first: str, env: dict[str, str]
) -> None:
    assert "not called" not in run(f"{first}\n{LOOP}", sink.url, **env).stderr


# --- names ---------------------------------------------------------------------------------------


def test_a_run_without_a_name_gets_one_that_people_can_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Script, date, two words, and digits that keep a thousand of the same day apart."""
    monkeypatch.setattr(sys, "argv", ["/jobs/train gpt.py"])
    name = new_run_name()
    assert re.fullmatch(r"train-gpt-\d{4}-\d\d-\d\d-[a-z]+-[a-z]+-[0-9a-f]{6}", name), name
    assert len({new_run_name() for _ in range(1_000)}) == 1_000
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert new_run_name().startswith(("c-", "run-"))


def test_a_uuid_that_torchrun_has_made_becomes_a_name_that_people_can_say() -> None:
    """``--standalone``: alike on all ranks and in all attempts, with its first digits; a name that
    somebody has given stays."""
    env = {"TORCHELASTIC_RUN_ID": "3f9a1c52-4b1e-4f6e-9a53-0d7c1f2b8e44", "RANK": "0"}
    name = find_run_id(env)
    assert re.fullmatch(r"run-[a-z]+-[a-z]+-3f9a1c", name), name
    assert find_run_id({**env, "RANK": "3", "TORCHELASTIC_RESTART_COUNT": "2"}) == name
    assert find_run_id({"TORCHELASTIC_RUN_ID": "pretrain-7"}) == "pretrain-7"


def test_ranks_of_one_launcher_make_the_same_name_of_its_address() -> None:
    env = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400"}
    assert re.fullmatch(r"run-[a-z]+-[a-z]+-[0-9a-f]{8}", find_run_id(env))
    assert find_run_id(env) == find_run_id(env | {"RANK": str(os.getpid())})
