"""Settings of a training process, resolved. Who may set what is in ``client/configuration.py``.

Every stage is given its slice: the exporter gets two endpoints, never the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Compression = Literal["none", "gzip"]
OtlpProtocol = Literal["http/protobuf", "grpc"]
GpuWish = Literal["auto", "off", "events", "cupti"]
GPU_WISHES: tuple[GpuWish, ...] = ("auto", "off", "events", "cupti")
Pairs = tuple[tuple[str, str], ...]

DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
DEFAULT_GRPC_ENDPOINT = "http://localhost:4317"
DEFAULT_QUEUE_BYTES = 64 * 1024 * 1024


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
    headers: Pairs = ()
    timeout_s: float = 10.0
    compression: Compression = "none"
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    is_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """All that ``configure()`` decided.

    Attributes:
        run_id, attempt, group, rank, local_rank, world_size, node, service_name, role: identity.
        page: whether people may be called for the run; None: the user said nothing.
        team: whose run it is; empty: the user said nothing.
        resource: further resource attributes, from ``OTEL_RESOURCE_ATTRIBUTES``.
        traces, metrics: the two endpoints.
        is_trusted: the endpoint is a scorer by the user's word; otherwise a handshake decides.
        is_disabled: record nothing, send nothing.
        heartbeat_s, flush_s, histogram_s: intervals.
        kernel_interval_s: kernel times are sent so often.
        kernel_cells: of so many kernels in sections; what is left is put together.
        queue_bytes: encoded requests kept while the collector is away.
        sample_steps: before a scorer is known, spans of one step in this many are sent.
        span_budget: spans per second above which hot sections are folded, step by step; 0: never.
        exit_deadline_s: the most that the end of the process waits for telemetry.
        strict: raise into the caller instead of logging; for tests.
        handle_sigterm: flush on SIGTERM.
        tracer_provider: the application's SDK provider that gets spans too; None = none.
        propagate_context: spans of user code become children of the section they start in.
        sdk_spans_per_s: the most that the provider gets; whole steps are left out above it.
        gpu_timing: the highest tier of GPU timing that is wanted.
        gpu_overhead: the part of a step that it may cost before it steps down; 0: no limit.
        cupti_path: of a libcupti to use instead of the one that torch brings; empty: search.
        evidence_dir: stacks of a rank that is stuck are written there; empty: never.
        evidence_after_s: without being asked after so long in one section; 0: only when asked.
        commands: ask the collector whether it wants stacks.
        commands_token: shows that it is one of ours that asks.
    """

    run_id: str
    attempt: int = 0
    group: str = ""
    rank: int = 0
    local_rank: int = -1
    world_size: int = 0
    node: str = ""
    service_name: str = ""
    role: str = ""
    page: bool | None = None
    team: str = ""
    resource: Pairs = ()
    traces: Endpoint
    metrics: Endpoint
    is_trusted: bool = True
    is_disabled: bool = False
    heartbeat_s: float = 5.0
    flush_s: float = 1.0
    histogram_s: float = 60.0
    kernel_interval_s: float = 10.0
    kernel_cells: int = 64
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    sample_steps: int = 100
    span_budget: int = 200
    exit_deadline_s: float = 2.0
    strict: bool = False
    handle_sigterm: bool = True
    tracer_provider: object | None = None
    propagate_context: bool = False
    sdk_spans_per_s: float = 100.0
    gpu_timing: GpuWish = "auto"
    gpu_overhead: float = 0.01
    cupti_path: str = ""
    evidence_dir: str = ""
    evidence_after_s: float = 0.0
    commands: bool = False
    commands_token: str = field(default="", repr=False)
