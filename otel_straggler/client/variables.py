"""The environment variables that a training process reads, and in which order.

The reference page is made from this table. Tests hold it to the resolver: each variable is set and
must have an effect, the first of an order must win, and a variable that is read must be here.
"""

from __future__ import annotations

from dataclasses import dataclass

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Attributes:
        name: of the variable.
        example: a value.
        needs: other variables with values, without which it is not looked at.
        key: of several in the variable, the one that counts.
    """

    name: str
    example: str
    needs: Pairs = ()
    key: str = ""


Source = Variable | str
"""A variable, or in words another place that is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Where a setting comes from if no argument gives it: the first that is found.

    Attributes:
        setting: an argument of ``configure()``, or another setting in words.
        sources: in order of precedence.
        otherwise: what it is if nothing is found; empty = the default in the code.
        meaning: of a setting that is no argument.
    """

    setting: str
    sources: tuple[Source, ...]
    otherwise: str = ""
    meaning: str = ""


def _own(setting: str, example: str, *others: Source, otherwise: str = "") -> Order:
    """Our own variable of an argument, then others."""
    own = Variable(f"OTEL_STRAGGLER_{setting.upper()}", example)
    return Order(setting=setting, sources=(own, *others), otherwise=otherwise)


def _otlp(name: str, example: str) -> tuple[Variable, ...]:
    """A variable of OpenTelemetry's exporters: of each signal, then of both."""
    return tuple(
        Variable(f"OTEL_EXPORTER_OTLP_{signal}{name}", example)
        for signal in ("TRACES_", "METRICS_", "")
    )


_ADDRESS = (("MASTER_ADDR", "10.0.0.1"),)

_GRPC_WITHOUT_SCHEME = (
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "gateway:4317"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
)

OF_ARGUMENTS: tuple[Order, ...] = (
    _own(
        "endpoint",
        "http://collector:4318",
        *_otlp("ENDPOINT", "http://backend:4318"),
        otherwise="`http://127.0.0.1:4318`; for gRPC `http://127.0.0.1:4317`",
    ),
    _own(
        "run_id",
        "run-7",
        Variable("SLURM_JOB_ID", "4711"),
        Variable("SLURM_RESTART_COUNT", "2", (("SLURM_JOB_ID", "4711"),)),
        Variable("RAY_JOB_ID", "raysubmit_1"),
        Variable("KUBEFLOW_TRAINING_JOB_ID", "pytorchjob-1"),
        Variable("TORCHELASTIC_RUN_ID", "elastic-1"),
        "a token in the store of `torch.distributed`",
        Variable("MASTER_ADDR", "10.0.0.1"),
        Variable("MASTER_PORT", "29400", _ADDRESS),
        otherwise="random",
    ),
    Order(
        setting="rank",
        sources=(Variable("RANK", "3"), "`torch.distributed`", Variable("SLURM_PROCID", "5")),
        otherwise="0",
    ),
    Order(
        setting="world_size",
        sources=(
            Variable("WORLD_SIZE", "8"),
            "`torch.distributed`",
            Variable("SLURM_NTASKS", "16"),
        ),
        otherwise="1 without a rank, else unknown",
    ),
    Order(
        setting="local_rank",
        sources=(Variable("LOCAL_RANK", "1"), Variable("SLURM_LOCALID", "2")),
        otherwise="unknown",
    ),
    _own("group", "critic", otherwise="empty"),
    _own(
        "service_name",
        "pretraining",
        Variable("OTEL_SERVICE_NAME", "named-for-opentelemetry"),
        Variable("OTEL_RESOURCE_ATTRIBUTES", "service.name=of-the-resource", key="service.name"),
        otherwise="name of the script",
    ),
    _own("role", "actor", otherwise="`default`"),
    _own("page", "false", otherwise="not said, so people are called"),
    _own("team", "vision", otherwise="empty"),
    _own(
        "headers",
        "authorization=Bearer%20own",
        *_otlp("HEADERS", "authorization=Bearer%20otlp"),
        otherwise="none",
    ),
    _own("protocol", "grpc", *_otlp("PROTOCOL", "grpc"), otherwise="`http/protobuf`"),
    _own("heartbeat_s", "2.5"),
    _own("flush_s", "0.5"),
    _own("exit_deadline_s", "4"),
    _own("gpu_timing", "cupti", otherwise="`auto`"),
    _own("gpu_overhead", "0.02", otherwise="`0.01`"),
    _own("evidence_dir", "/shared/evidence", otherwise="none: no stacks"),
    _own("evidence_after_s", "120"),
    _own("commands", "on", otherwise="`off`"),
    _own("commands_token", "4f1c", otherwise="none"),
)
"""One for each argument of ``configure()`` that the environment can give."""

WITHOUT_ARGUMENT: tuple[Order, ...] = (
    Order(
        setting="everything off",
        sources=(
            Variable("OTEL_STRAGGLER_DISABLED", "true"),
            Variable("OTEL_SDK_DISABLED", "true"),
        ),
        otherwise="on",
        meaning="`true` or `1`: nothing is recorded and nothing is sent",
    ),
    Order(
        setting="spans off",
        sources=(Variable("OTEL_TRACES_EXPORTER", "none"),),
        otherwise="on",
        meaning="`none`: this package sends no spans",
    ),
    Order(
        setting="heartbeats and histograms off",
        sources=(Variable("OTEL_METRICS_EXPORTER", "none"),),
        otherwise="on",
        meaning="`none`: this package sends neither",
    ),
    Order(
        setting="how often kernel times are sent",
        sources=(Variable("OTEL_STRAGGLER_KERNEL_INTERVAL_S", "30"),),
        otherwise="10",
        meaning="seconds, counted by the wall clock, so that all ranks tell of the same time; with "
        "more than 60, GPU scores have gaps",
    ),
    Order(
        setting="kernels told of",
        sources=(Variable("OTEL_STRAGGLER_KERNEL_CELLS", "200"),),
        otherwise="64",
        meaning="so many pairs of kernel and section have times of their own, those in which most "
        "time is spent; the others are put together as `<other>`",
    ),
    Order(
        setting="attempt",
        sources=(Variable("TORCHELASTIC_RESTART_COUNT", "2"),),
        otherwise="0",
        meaning="restarts of the launcher so far",
    ),
    Order(
        setting="node",
        sources=(Variable("OTEL_RESOURCE_ATTRIBUTES", "host.name=node-7", key="host.name"),),
        otherwise="host name",
        meaning="where the rank runs",
    ),
    Order(
        setting="further resource attributes",
        sources=(Variable("OTEL_RESOURCE_ATTRIBUTES", "team=vision"),),
        otherwise="none",
        meaning="sent with everything, under the attributes of this package",
    ),
    Order(
        setting="time-out of a request",
        sources=_otlp("TIMEOUT", "2500"),
        otherwise="10000",
        meaning="milliseconds",
    ),
    Order(
        setting="compression of requests",
        sources=_otlp("COMPRESSION", "gzip"),
        otherwise="`none`",
        meaning="`gzip` or `none`",
    ),
    Order(
        setting="certificates of the other side",
        sources=_otlp("CERTIFICATE", "/etc/ca.pem"),
        otherwise="those of the system",
        meaning="PEM file of the authorities to trust",
    ),
    Order(
        setting="own certificate",
        sources=_otlp("CLIENT_CERTIFICATE", "/etc/client.pem"),
        otherwise="none",
        meaning="PEM file, for mutual TLS",
    ),
    Order(
        setting="key of the own certificate",
        sources=_otlp("CLIENT_KEY", "/etc/client.key"),
        otherwise="none",
        meaning="PEM file, for mutual TLS",
    ),
    Order(
        setting="gRPC without TLS",
        sources=tuple(
            Variable(f"OTEL_EXPORTER_OTLP_{signal}INSECURE", "true", _GRPC_WITHOUT_SCHEME)
            for signal in ("TRACES_", "METRICS_", "")
        ),
        otherwise="with TLS",
        meaning="`true`: for a gRPC endpoint that is named without `http://` or `https://`",
    ),
    Order(
        setting="interval of section histograms",
        sources=(Variable("OTEL_METRIC_EXPORT_INTERVAL", "10000"),),
        otherwise="60000",
        meaning="milliseconds; histograms go only to an endpoint that does not score",
    ),
    Order(
        setting="libcupti",
        sources=(Variable("OTEL_STRAGGLER_CUPTI", "/usr/local/cuda/lib64/libcupti.so.13"),),
        otherwise="the one that torch has loaded or brings, then the loader's",
        meaning="path of the library that times kernels; no other is looked for",
    ),
    Order(
        setting="hash of the address as run id",
        sources=(
            Variable("WORLD_SIZE", "8", (*_ADDRESS, ("LOCAL_WORLD_SIZE", "4"))),
            Variable("LOCAL_WORLD_SIZE", "4", (*_ADDRESS, ("WORLD_SIZE", "8"))),
        ),
        meaning="if both are equal the launcher's start time is part of the hash, so that a later "
        "run at the same address has another id",
    ),
)
"""Settings that have no argument."""

OF_PROCESS: tuple[Order, ...] = (
    Order(
        setting="native part",
        sources=(Variable("OTEL_STRAGGLER_NATIVE", "off"),),
        otherwise="`auto`",
        meaning="`auto`: the native part is used where it was built; `off`: the fallback in "
        "Python; `required`: `configure()` refuses to go on without it. Read at import",
    ),
    Order(
        setting="folder of ring files",
        sources=(Variable("OTEL_STRAGGLER_RING_DIR", "/var/run/otel-straggler"),),
        otherwise="none: private memory",
        meaning="the native recorder keeps its ring in a file there (11 MiB, removed at a normal "
        "exit), from which other processes can tell what a dead or stopped one was in. Read when "
        "recording begins",
    ),
)
"""Settings of the process that the resolver does not see."""

OF_DETECTOR: tuple[Order, ...] = (
    _own("endpoint", "http://collector:4318", otherwise="nothing is sent"),
    _own("role", "actor", otherwise="`default`"),
    _own("collector", "http://collector:9464", otherwise="`http://127.0.0.1:9464`"),
)
"""Arguments of ``Detector.initialize()`` that the environment can give."""


def all_variables() -> tuple[Variable, ...]:
    """Every one, as often as it stands in an order."""
    orders = (*OF_ARGUMENTS, *WITHOUT_ARGUMENT, *OF_DETECTOR)
    return tuple(s for order in orders for s in order.sources if isinstance(s, Variable))
