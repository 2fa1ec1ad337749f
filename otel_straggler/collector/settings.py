"""All settings of the collector, in one table: the file's sections, in its order.

A new setting is one row here (of scores, verdicts and hangs: in ``detect/scores/settings.py``; of
alerts: in ``alerts/settings.py`` and ``alerting/posting.py``), and the place that uses it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.access.settings import ADDRESS, AuthSettings, TlsSettings
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.config import TOKEN
from otel_straggler.detect.scores.settings import HangSettings, ScoreSettings, VerdictSettings
from otel_straggler.model.alert import Mode
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.span_rules import SpanNames
from otel_straggler.secret import secret_if_url
from otel_straggler.setting import (
    ANY_TEXT,
    BASE_URLS,
    SWITCH,
    above,
    choice,
    integer,
    kind,
    option,
    text,
    texts,
)

MiB: Final = 1024 * 1024


def _is_forward_url(url: str) -> bool:
    of_a_signal = url.rstrip("/").endswith(("/v1/traces", "/v1/metrics", "/v1/logs"))
    return not url or (url.startswith(("http://", "https://")) and not of_a_signal)


def _are_stripped(values: list[str]) -> bool:
    return all(value and value == value.strip() for value in values)


_BYTES: Final = integer(MiB)
_KEYS: Final = texts("a list of attribute keys without blanks around them", _are_stripped)
_PATTERNS: Final = texts("a list of patterns of span names, such as train.*", _are_stripped)
_FORWARD_MODE: Final = kind(
    accepts=lambda value: value is False or value in ("", "off", "all", "sampled"),
    expected='"off", "all" or "sampled"',
    convert=lambda value: value or ("off" if value is False else ""),  # YAML reads off as false
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """Where OTLP comes in."""

    otlp_http: str = option(
        "127.0.0.1:4318", ADDRESS, "OTLP over HTTP, protobuf and JSON", "--otlp-http HOST:PORT"
    )
    otlp_grpc: str = option("127.0.0.1:4317", ADDRESS, "OTLP over gRPC", "--otlp-grpc HOST:PORT")
    max_body_bytes: int = option(
        64 * MiB,
        integer(1024),
        "of one request, decompressed; larger ones are refused, of JSON those above 16 MiB, too",
    )
    max_waiting_bytes: int = option(
        256 * MiB,
        _BYTES,
        "of requests not yet scored; beyond it senders are asked to retry. An eighth is reserved "
        "for metrics, so that a flood of spans makes no rank lost",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The live page, /metrics, /v1/report, /healthz and /readyz."""

    listen: str = option(
        "127.0.0.1:9464", ADDRESS, "live page, /metrics, /v1/report, health", "--metrics HOST:PORT"
    )
    socket: str = option(
        "",
        ANY_TEXT,
        "path of a Unix socket that serves the same; this user is admin there without a token",
    )
    allowed_hosts: tuple[str, ...] = option(
        (), texts("a list of text"), "further names that a Host header may carry"
    )
    collector_id: str = option(
        "", ANY_TEXT, "value of the `collector` label; host name and port if empty"
    )
    cluster: str = option(
        "", ANY_TEXT, "value of the `cluster` label of every series; no such label if empty"
    )
    peers: tuple[str, ...] = option(
        (),
        BASE_URLS,
        "metrics addresses of the other shards behind one gateway: the page and `/v1/runs` show "
        "the runs of all, and a run that moves between them alerts once. The list may contain this "
        "shard",
        "--peers URL,...",
    )
    series_budget: int = option(
        50_000,
        integer(100),
        "series of all runs; each gets the same share, and what smaller ones leave: up to "
        "half for heartbeats of ranks, a quarter for cells of the matrix, the rest for scores, "
        "then sensors. What does not fit is folded, last that of ranks in trouble",
    )
    keep_scores_seconds: float = option(
        900.0, above(0), "how long a rank's last scores stay without a new window"
    )
    decisions: bool = option(
        True,
        SWITCH,
        "whether verdicts may be dismissed and muted at this address, and maintenance announced",
    )
    timeline_mib: int = option(
        64, integer(1), "memory for the newest windows on the live page, at most 360 of every run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeSettings:
    """Further attribute keys of other instrumentations, read before the built-in ones; of several
    present the first is read."""

    rank: tuple[str, ...] = option((), _KEYS, "on a resource, a span, or a data point")
    world_size: tuple[str, ...] = option((), _KEYS, "on a resource, a span, or a data point")
    local_rank: tuple[str, ...] = option((), _KEYS, "on a resource, a span, or a data point")
    run_id: tuple[str, ...] = option((), _KEYS, "on a resource, a span, or a data point")
    role: tuple[str, ...] = option((), _KEYS, "on a resource, a span, or a data point")
    step: tuple[str, ...] = option((), _KEYS, "the optimizer step of a span")
    section: tuple[str, ...] = option((), _KEYS, "the section of a span, in place of its name")

    def aliases(self) -> Aliases:
        return Aliases().extended(**asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSettings:
    """Which spans of other instrumentations are scored and as what kind, by globs of their names. A
    list replaces the default."""

    include: tuple[str, ...] = option(("*",), _PATTERNS, "names that are scored")
    exclude: tuple[str, ...] = option(
        semconv.UNSCORED_SPANS,
        _PATTERNS,
        "names that are not, though included: spans of a whole run or step, and kernels",
    )
    wait: tuple[str, ...] = option(
        semconv.KNOWN_KINDS["wait"],
        _PATTERNS,
        "spans of waiting, such as collectives; scored, never listed",
    )
    data: tuple[str, ...] = option(semconv.KNOWN_KINDS["data"], _PATTERNS, "spans of input")
    checkpoint: tuple[str, ...] = option(
        semconv.KNOWN_KINDS["checkpoint"],
        _PATTERNS,
        "spans of saving and loading; scored, never listed",
    )
    eval: tuple[str, ...] = option(
        semconv.KNOWN_KINDS["eval"], _PATTERNS, "spans of an evaluation; scored, never listed"
    )
    other: tuple[str, ...] = option(
        semconv.KNOWN_KINDS["other"],
        _PATTERNS,
        "spans of none of these kinds; a span in no list is `compute`",
    )

    def names(self) -> SpanNames:
        kinds = {name: getattr(self, name) for name in semconv.KNOWN_KINDS}
        return SpanNames(self.include, self.exclude, kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings(ScoreSettings):
    """Windows, scores, and how many runs."""

    max_groups: int = option(200, integer(1), "of one run, kept and rejected like runs")
    max_ranks: int = option(
        16_384,
        integer(1),
        "of one run; further ones, ranks numbered from here on, and larger world sizes are set "
        "aside and shown as problems of their senders",
    )
    memory_mib: int = option(
        2_048,
        integer(64),
        "for all that is known of all runs, roughly; beyond it the runs with more than an equal "
        "share take no further ranks and section names, and their windows close early",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessSettings(HangSettings):
    """When a rank is lost or stuck."""

    give_up_s: float = option(
        259_200.0,
        above(0),
        "a stuck or lost run stays this long after its last heartbeat, unless somebody "
        "acknowledges it; then it is `forgotten` for an hour, and evicted",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandsSettings:
    """Asking ranks for flight records and stacks; off unless switched on here and on the ranks."""

    enabled: bool = option(
        False,
        SWITCH,
        "whether ranks may poll `/v1/commands` of the OTLP/HTTP port, and people may send commands "
        "to that of the metrics address",
    )
    token: str = option(
        "",
        TOKEN,
        "shared secret of both; the variable `OTEL_STRAGGLER_COMMANDS_TOKEN` if empty",
    )
    on_hang: tuple[str, ...] = option(
        (semconv.DUMP_FLIGHT_RECORD,),
        texts(f"a list of {', '.join(semconv.HANG_VERBS)}", set(semconv.HANG_VERBS).issuperset),
        "commands when a run is stuck: `dump_flight_record` for all its ranks (1,024 at most), "
        "`dump_stacks` for the culprits and three victims",
    )
    expire_seconds: float = option(
        120.0, above(0), "a command expires if its rank has not fetched it by then"
    )
    profile_steps: int = option(
        0,
        integer(0, semconv.MAX_PROFILED_STEPS),
        "steps that a confirmed slow rank and one healthy peer of it profile, so that their "
        "operators can be compared; 0 = never",
    )
    profiles_per_day: int = option(
        4, integer(1), "such pairs of one run in 24 hours, at most; each slow rank once"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSettings:
    """Where requests are forwarded. Mode "sampled" keeps the spans of ranks named by a verdict or
    the newest window, of slow steps, and of one trace in N; metrics and logs pass untouched. In
    both modes each step gets one root, and a trace has a bound."""

    url: str = option(
        "",
        text(
            "an http:// or https:// URL to which /v1/traces can be added, e.g. http://gateway:4318",
            _is_forward_url,
        ),
        "base URL of an OTLP/HTTP endpoint; each signal's path is added",
        "--forward URL",
    )
    mode: str = option(
        "",
        _FORWARD_MODE,
        'off, all, or sampled; empty = "all" if there is a URL',
        "--forward-mode MODE",
    )
    max_queue_bytes: int = option(
        256 * MiB, _BYTES, "of requests that wait; beyond it the oldest is dropped, and counted"
    )
    sample_every: int = option(
        100, integer(1), 'mode "sampled" keeps one trace in so many, by its id'
    )
    slow_step_ratio: float = option(
        1.5,
        above(1),
        'mode "sampled" keeps steps whose slowest rank took so many times the typical step',
    )
    max_trace_spans: int = option(
        2_000,
        integer(4),
        "of one trace, with its root; ranks that no longer fit are left out whole and summarised",
    )
    max_held_bytes: int = option(
        256 * MiB,
        _BYTES,
        "of requests that wait until their steps are scored; near it the oldest are decided early",
    )
    hold_seconds: float = option(60.0, above(0), "longest wait of spans, and of a root, for scores")

    @property
    def is_on(self) -> bool:
        return bool(self.url) and self.mode != "off"

    @property
    def is_sampled(self) -> bool:
        return self.is_on and self.mode == "sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """What survives a restart of the collector: references, verdicts, summaries of windows."""

    path: str = option(
        "",
        replace(ANY_TEXT, convert=secret_if_url),
        "SQLite file; or `postgresql://USER@HOST/DATABASE`, which all shards may share (the "
        "password: in `PGPASSWORD` or `~/.pgpass`); empty = in memory, gone with the process",
        "--history PATH",
    )
    keep_days: float = option(7.0, above(0), "older rows are deleted")
    max_mib: int = option(
        512,
        integer(1),
        "size of the file, or of what all shards have in the database; the oldest windows go "
        "first, verdicts last",
    )
    save_every_seconds: float = option(
        10.0, above(0), "a collector that is killed loses at most this much of its state"
    )
    spool: str = option(
        "",
        ANY_TEXT,
        "directory of a log of accepted requests, so that a collector that is killed loses none; "
        "needs `path`; empty = no log",
        "--spool DIR",
    )
    spool_fsync: str = option(
        "batch",
        choice("batch", "never"),
        "batch: a request is acknowledged once it is on the disk, which survives a power cut; "
        "never: once the system has it, which survives the end of the process",
    )
    spool_max_mib: int = option(
        1024, integer(1), "size of the log; beyond it the oldest requests are dropped, and counted"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsSettings(AlertSettings):
    """Thresholds of alerts; rendered rules have them only if rendered with the same ones."""

    notify: NotifySettings = field(default_factory=NotifySettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The collector's own log, on standard error."""

    format: str = option(
        "text",
        choice("text", "json"),
        "text, or json: one object a line with `time` (RFC 3339, with its zone), `level`, `logger` "
        "and `message`; of the audit trail also its fields, as `audit`",
        "--log-format FORMAT",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """All sections of the file."""

    receivers: ReceiverSettings = field(default_factory=ReceiverSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    attributes: AttributeSettings = field(default_factory=AttributeSettings)
    spans: SpanSettings = field(default_factory=SpanSettings)
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    verdicts: VerdictSettings = field(default_factory=VerdictSettings)
    liveness: LivenessSettings = field(default_factory=LivenessSettings)
    commands: CommandsSettings = field(default_factory=CommandsSettings)
    forward: ForwardSettings = field(default_factory=ForwardSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    alerts: AlertsSettings = field(default_factory=AlertsSettings)
    log: LogSettings = field(default_factory=LogSettings)

    @property
    def mode(self) -> Mode:
        """Whether alerts may notify people."""
        return "page" if self.alerts.mode == "page" else "observe"
