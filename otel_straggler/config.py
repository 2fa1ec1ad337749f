"""All settings of a training process, in one table: what there is, and where each comes from.

``configure()`` takes arguments by these names and says what they mean; ``client/settings.py``
resolves them; the reference page, the doctor and the errors read this table. Every stage is given
its slice: the exporter gets two endpoints, never the environment.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Final, Literal

from otel_straggler.setting import (
    FLAG,
    SECONDS,
    SECONDS_OR_NEVER,
    TEXT,
    Kind,
    Pairs,
    Setting,
    Variable,
    count,
    is_number,
    otlp,
    own,
    read_number,
    setting,
)

Compression = Literal["none", "gzip"]
OtlpProtocol = Literal["http/protobuf", "grpc"]
GpuRequest = Literal["auto", "off", "events", "cupti"]
GPU_REQUESTS: tuple[GpuRequest, ...] = ("auto", "off", "events", "cupti")

DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
DEFAULT_GRPC_ENDPOINT = "http://localhost:4317"
_MAX_RANK = 2**31 - 1
_ADDRESS = (("MASTER_ADDR", "10.0.0.1"),)
_GRPC_WITHOUT_SCHEME = (
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "gateway:4317"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
)
_RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
_FOR_MUTUAL = "PEM file, for mutual TLS"
_PAGE = Kind(
    accepts=lambda value: isinstance(value, bool),
    expected="True or False",
    remedy="Set it to false for a run that never pages.",
    read=lambda text: {"true": True, "false": False}.get(text.lower(), text),
)
_SPANS_PER_S = Kind(
    accepts=lambda value: is_number(value) and 0 < value <= 1_000_000,
    expected="a number above 0, at most a million, and a tracer_provider with it",
    remedy="Leave it out for the default of 100.",
    convert=float,
)
_GPU_TIMING = Kind(
    accepts=lambda value: value in GPU_REQUESTS,
    expected="one of " + ", ".join(GPU_REQUESTS),
    remedy="Leave it out for 'auto'.",
    read=str.lower,
)
_GPU_OVERHEAD = Kind(
    accepts=lambda value: is_number(value) and 0 <= value <= 1,
    expected="a part of the step from 0 to 1",
    remedy="Leave it out for 0.005, which is half a percent; 0 is no limit.",
    read=read_number,
    convert=float,
)
_ON_OR_OFF = Kind(
    accepts=lambda value: value in {"on", "off"},
    expected="on or off",
    remedy="Leave it out for off.",
    read=str.lower,
    convert=lambda value: value == "on",
)
_ON_UNLESS_OFF = replace(_ON_OR_OFF, remedy="Leave it out for on.")
TOKEN = Kind(
    accepts=lambda value: (
        isinstance(value, str) and len(value) <= 500 and all("!" <= c <= "~" for c in value)
    ),
    expected="at most 500 letters, digits and signs of ASCII, without blanks",
    remedy="Make one, for example with: openssl rand -hex 32",
    is_secret=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one signal goes, and how.

    Attributes:
        url: complete, with path; for gRPC scheme, host and port only.
        protocol: OTLP over what.
        headers: sent with every request.
        timeout_s: for one request.
        compression: of request bodies.
        ca_file, client_cert_file, client_key_file: PEM files for TLS; empty = not set.
        is_enabled: false if the user switched this signal off.
    """

    url: str
    protocol: OtlpProtocol = "http/protobuf"
    headers: Pairs = field(default=(), repr=False)
    timeout_s: float = 10.0
    compression: Compression = "none"
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    is_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """All that ``configure()`` decided; what an argument means stands there.

    Attributes:
        traces, metrics: the two endpoints.
        is_trusted: the endpoint is a scorer by the user's word; otherwise a handshake decides.
        page: None: the user said nothing.
        sample_steps: before a scorer is known, spans of one step in this many are sent.
    """

    run_id: str = setting(
        MISSING,
        TEXT,
        *own("RUN_ID", "run-7"),
        Variable("SLURM_JOB_ID", "4711"),
        Variable("SLURM_RESTART_COUNT", "2", (("SLURM_JOB_ID", "4711"),)),
        Variable("RAY_JOB_ID", "raysubmit_1"),
        Variable("KUBEFLOW_TRAINING_JOB_ID", "pytorchjob-1"),
        Variable("TORCHELASTIC_RUN_ID", "elastic-1"),
        "a token in the store of `torch.distributed`",
        Variable("MASTER_ADDR", "10.0.0.1"),
        Variable("MASTER_PORT", "29400", _ADDRESS),
        otherwise="a new name, such as `train-2026-11-24-quiet-otter-3f9a1c`",
    )
    rank: int = setting(
        0,
        count(0, _MAX_RANK),
        "`torch.distributed`, once it is initialised",
        Variable("RANK", "3"),
        Variable("SLURM_PROCID", "5"),
        otherwise="0",
    )
    world_size: int = setting(
        0,
        count(1, _MAX_RANK),
        "`torch.distributed`, once it is initialised",
        Variable("WORLD_SIZE", "8"),
        Variable("SLURM_NTASKS", "16"),
        otherwise="1 without a rank, else unknown",
    )
    local_rank: int = setting(
        -1,
        count(0, _MAX_RANK),
        Variable("LOCAL_RANK", "1"),
        Variable("SLURM_LOCALID", "2"),
        otherwise="unknown",
    )
    group: str = setting("", TEXT, *own("GROUP", "critic"), otherwise="empty")
    service_name: str = setting(
        "",
        TEXT,
        *own("SERVICE_NAME", "pretraining"),
        Variable("OTEL_SERVICE_NAME", "named-for-opentelemetry"),
        Variable(_RESOURCE, "service.name=of-the-resource", key="service.name"),
        otherwise="name of the script",
    )
    role: str = setting("", TEXT, *own("ROLE", "actor"), otherwise="`default`")
    page: bool | None = setting(
        None, _PAGE, *own("PAGE", "false"), otherwise="not given, so people are notified"
    )
    team: str = setting("", TEXT, *own("TEAM", "vision"), otherwise="empty")
    heartbeat_s: float = setting(5.0, SECONDS, *own("HEARTBEAT_S", "2.5"))
    flush_s: float = setting(1.0, SECONDS, *own("FLUSH_S", "0.5"))
    queue_bytes: int = setting(64 * 1024 * 1024, count(1, 2**40))
    sample_steps: int = setting(100, count(1, 2**31))
    span_budget: int = setting(200, count(0, 2**31))
    exit_deadline_s: float = setting(2.0, SECONDS, *own("EXIT_DEADLINE_S", "4"))
    strict: bool = setting(False, FLAG)
    handle_sigterm: bool = setting(True, FLAG)
    tracer_provider: object | None = None
    propagate_context: bool = setting(False, FLAG)
    sdk_spans_per_s: float = setting(100.0, _SPANS_PER_S)
    gpu_timing: GpuRequest = setting(
        "auto", _GPU_TIMING, *own("GPU_TIMING", "cupti"), otherwise="`auto`"
    )
    gpu_overhead: float = setting(
        0.005, _GPU_OVERHEAD, *own("GPU_OVERHEAD", "0.02"), otherwise="`0.005`"
    )
    hardware: bool = setting(True, _ON_UNLESS_OFF, *own("HARDWARE", "off"), otherwise="`on`")
    collectives: bool = setting(True, _ON_UNLESS_OFF, *own("COLLECTIVES", "off"), otherwise="`on`")
    evidence_dir: str = setting(
        "", TEXT, *own("EVIDENCE_DIR", "/shared/evidence"), otherwise="none: no stacks"
    )
    evidence_after_s: float = setting(0.0, SECONDS_OR_NEVER, *own("EVIDENCE_AFTER_S", "120"))
    commands: bool = setting(False, _ON_OR_OFF, *own("COMMANDS", "on"), otherwise="`off`")
    commands_token: str = setting("", TOKEN, *own("COMMANDS_TOKEN", "4f1c"), otherwise="none")
    is_disabled: bool = setting(
        False,
        None,
        *own("DISABLED", "true", Variable("OTEL_SDK_DISABLED", "true")),
        name="everything off",
        otherwise="on",
        meaning="`true` or `1`: nothing is recorded and nothing is sent",
    )
    kernel_interval_s: float = setting(
        10.0,
        SECONDS,
        *own("KERNEL_INTERVAL_S", "30"),
        name="interval of kernel times",
        otherwise="10",
        meaning="seconds, counted by the wall clock, so that all ranks report the same time; with "
        "more than 60, GPU scores have gaps",
    )
    kernel_cells: int = setting(
        64,
        count(1, 8_192, "Leave it out for the default of {default}."),
        *own("KERNEL_CELLS", "200"),
        name="kernels reported",
        otherwise="64",
        meaning="so many pairs of kernel and section have times of their own, those in which most "
        "time is spent; the others are put together as `<other>`",
    )
    attempt: int = setting(
        0,
        None,
        *own("ATTEMPT", "3"),
        Variable("TORCHELASTIC_RESTART_COUNT", "2"),
        otherwise="0",
        meaning="restarts of the run so far: `otel-straggler run` counts them alike on all nodes",
    )
    restarts_left: int | None = setting(
        None,
        None,
        Variable("TORCHELASTIC_MAX_RESTARTS", "3", (("TORCHELASTIC_RESTART_COUNT", "1"),)),
        name="restarts that are left",
        otherwise="unknown",
        meaning="torchelastic's limit, of which the restarts so far are taken: a run that fails "
        "while there are some is being restarted, and notifies nobody",
    )
    failure_messages: bool = setting(
        True,
        _ON_UNLESS_OFF,
        *own("FAILURE_MESSAGES", "off"),
        name="messages of exceptions",
        otherwise="`on`",
        meaning="`on`: a rank that an exception ends sends its type and the first line of its "
        "message, at most 200 characters, without what looks like a password or token; `off`: "
        "only the type",
    )
    node: str = setting(
        "",
        None,
        Variable(_RESOURCE, "host.name=node-7", key="host.name"),
        otherwise="host name",
        meaning="where the rank runs",
    )
    resource: Pairs = setting(
        (),
        None,
        Variable(_RESOURCE, "team=vision"),
        name="further resource attributes",
        otherwise="none",
        meaning="sent with everything, under the attributes of this package",
    )
    histogram_s: float = setting(
        60.0,
        None,
        Variable("OTEL_METRIC_EXPORT_INTERVAL", "10000"),
        name="interval of section histograms",
        otherwise="60000",
        meaning="milliseconds; histograms go only to an endpoint that does not score",
    )
    cupti_path: str = setting(
        "",
        TEXT,
        *own("CUPTI", "/usr/local/cuda/lib64/libcupti.so.13"),
        name="libcupti",
        otherwise="the one that torch has loaded or brings, then the loader's",
        meaning="path of the library that times kernels; no other is looked for",
    )
    discovery: bool = setting(
        True,
        _ON_UNLESS_OFF,
        *own("DISCOVERY", "off"),
        name="discovery of the collector",
        otherwise="`on`",
        meaning="`on`: where no endpoint is named and the run has several nodes, the address that "
        "rank 0 leaves in the store of torch.distributed is used: its endpoint, or a collector at "
        "port 4318 (gRPC: 4317) of `MASTER_ADDR`. Takes half a second at most; before "
        "`init_process_group()`, records wait for it, until the first step or for 10 s",
    )
    inject: str = setting(
        "",
        TEXT,
        *own("INJECT", "compute:1.5@rank3:step40-60"),
        name="fault injection",
        otherwise="none",
        meaning="faults that ranks inject into themselves, to try what detects them "
        "([fault injection](../operate/inject.md)); nothing is loaded without it",
    )
    traces: Endpoint
    metrics: Endpoint
    is_trusted: bool = True


BY_FIELD: dict[str, Setting] = {
    f.name: replace(result, name=result.name or f.name, field=f.name)
    for f in fields(ClientSettings)
    if (result := f.metadata.get("setting"))
}
"""The rows of the table by field of :class:`ClientSettings`."""

_OF_ENDPOINTS: tuple[Setting, ...] = (
    Setting(
        "endpoint",
        own("ENDPOINT", "http://collector:4318", *otlp("ENDPOINT", "http://backend:4318")),
        "`http://127.0.0.1:4318`; for gRPC `http://127.0.0.1:4317`",
    ),
    Setting(
        "headers",
        own("HEADERS", "authorization=Bearer%20own", *otlp("HEADERS", "authorization=Bearer%20x")),
        "none",
    ),
    Setting("protocol", own("PROTOCOL", "grpc", *otlp("PROTOCOL", "grpc")), "`http/protobuf`"),
    Setting(
        "spans off",
        (Variable("OTEL_TRACES_EXPORTER", "none"),),
        "on",
        "`none`: this package sends no spans",
    ),
    Setting(
        "heartbeats and histograms off",
        (Variable("OTEL_METRICS_EXPORTER", "none"),),
        "on",
        "`none`: this package sends neither",
    ),
    Setting("time-out of a request", otlp("TIMEOUT", "2500"), "10000", "milliseconds"),
    Setting("compression of requests", otlp("COMPRESSION", "gzip"), "`none`", "`gzip` or `none`"),
    Setting(
        "certificates of the other side",
        otlp("CERTIFICATE", "/etc/ca.pem"),
        "those of the system",
        "PEM file of the authorities to trust",
    ),
    Setting("own certificate", otlp("CLIENT_CERTIFICATE", "/etc/client.pem"), "none", _FOR_MUTUAL),
    Setting(
        "key of the own certificate", otlp("CLIENT_KEY", "/etc/client.key"), "none", _FOR_MUTUAL
    ),
    Setting(
        "gRPC without TLS",
        otlp("INSECURE", "true", _GRPC_WITHOUT_SCHEME),
        "with TLS",
        "`true`: for a gRPC endpoint that is named without `http://` or `https://`",
    ),
    Setting(
        "hash of the address as run id",
        (
            Variable("WORLD_SIZE", "8", (*_ADDRESS, ("LOCAL_WORLD_SIZE", "4"))),
            Variable("LOCAL_WORLD_SIZE", "4", (*_ADDRESS, ("WORLD_SIZE", "8"))),
        ),
        "",
        "if both are equal the launcher's start time is part of the hash, so that a later run at "
        "the same address has another id",
    ),
)
_RESOLVED = (*BY_FIELD.values(), *_OF_ENDPOINTS)

OF_ARGUMENTS: tuple[Setting, ...] = tuple(s for s in _RESOLVED if s.sources and not s.meaning)
"""Arguments of ``configure()`` that the environment can give."""
WITHOUT_ARGUMENT: tuple[Setting, ...] = tuple(s for s in _RESOLVED if s.meaning)
"""Settings that have no argument."""
OF_PROCESS: tuple[Setting, ...] = (
    Setting(
        "native part",
        own("NATIVE", "off"),
        "`auto`",
        "`auto`: the native part is used where it was built; `off`: the fallback in Python; "
        "`required`: `configure()` refuses to go on without it. Read at import",
    ),
    Setting(
        "folder of ring files",
        own("RING_DIR", "/var/run/otel-straggler"),
        "none: private memory",
        "the native recorder keeps its ring in a file there (11 MiB, removed at a normal exit), "
        "from which other processes can tell what a dead or stopped one was in. Read when "
        "recording begins",
    ),
    Setting(
        "token for a collector",
        own("TOKEN_FILE", "/run/secrets/straggler-token"),
        "none",
        "file with a bearer token that commands, trackers and the doctor send to a collector's "
        "metrics address; read again for each request",
    ),
    Setting(
        "rank monitor",
        own(
            "AGENT_SOCKET", "/run/agent/agent.sock", Variable("FT_RANK_MONITOR_IPC_SOCKET", "path")
        ),
        "none: `init_workload_monitoring()` is an error",
        "socket of the node's agent for `fault_tolerance.RankMonitorClient`; set by "
        "`otel-straggler run`",
    ),
    Setting(
        "parent",
        own("PARENT_PID", "4711"),
        "none",
        "process that the kernel ends torchrun and its ranks with; set by `otel-straggler run`",
    ),
    Setting(
        "request of a checkpoint",
        own("CHECKPOINT_REQUEST_FILE", "/run/save-now"),
        "none",
        "while `checkpoint.Manager` runs, a file that appears there has all ranks save at the "
        "newest step that they share",
    ),
    Setting(
        "key of checkpoints",
        own("CHECKPOINT_KEY_FILE", "/etc/training/manifest.key"),
        "none: manifests are not signed",
        "file of mode 0600 with one or two keys, a line each: `checkpoint.Manager` signs manifests "
        "with the first, and restores nothing that neither has signed",
    ),
    Setting(
        "NVTX ranges",
        own("NVTX", "on"),
        "none",
        "`on`: sections and steps are NVTX ranges, too; set by `otel-straggler profile nsys`",
    ),
    Setting(
        "supervisor",
        own("SUPERVISOR", "http://supervisor:9470"),
        "none: nothing is reported",
        "agent and launcher of a node report hung and exited ranks, attempts, and their own start "
        "and end to `otel-straggler supervise` there",
    ),
    Setting(
        "token for the supervisor",
        own("SUPERVISOR_TOKEN_FILE", "/run/secrets/straggler-supervisor-token"),
        "none",
        "file with a bearer token of a grant `ingest`; read again for each report",
    ),
)
"""Settings of the process that the resolver does not see."""
OF_DETECTOR: tuple[Setting, ...] = (
    Setting("endpoint", own("ENDPOINT", "http://collector:4318"), "nothing is sent"),
    Setting("role", own("ROLE", "actor"), "`default`"),
    Setting("collector", own("COLLECTOR", "http://collector:9464"), "`http://127.0.0.1:9464`"),
)
"""Arguments of ``Detector.initialize()`` that the environment can give."""


def all_variables() -> tuple[Variable, ...]:
    """Every variable that the client reads, as often as it stands in a row."""
    rows = (*OF_ARGUMENTS, *WITHOUT_ARGUMENT, *OF_DETECTOR, *OF_PROCESS)
    return tuple(s for row in rows for s in row.sources if isinstance(s, Variable))


_PREFIX: Final = "OTEL_STRAGGLER_"
_OF_KUBERNETES: Final = re.compile(
    r"(?:.*_)?(?:SERVICE_(?:HOST|PORT(?:_\w+)?)|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)"
)
"""What Kubernetes sets in every pod for a Service named ``otel-straggler`` or ``...-collector``."""


def unknown_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Variables of our prefix that nothing reads, each with the one that it is close to; empty
    where none is.

    >>> list(unknown_variables({"OTEL_STRAGGLER_" + "ENDPIONT": "http://a"}).values())
    ['OTEL_STRAGGLER_ENDPOINT']
    """
    known = sorted({each.name for each in all_variables() if each.name.startswith(_PREFIX)})
    unknown = sorted(
        name
        for name in env
        if name.startswith(_PREFIX)
        and name not in known
        and not _OF_KUBERNETES.fullmatch(name.removeprefix(_PREFIX))
    )
    endings = [name.removeprefix(_PREFIX) for name in known]
    close = {
        name: difflib.get_close_matches(name.removeprefix(_PREFIX), endings, 1) for name in unknown
    }
    return {name: f"{_PREFIX}{nearest[0]}" if nearest else "" for name, nearest in close.items()}
