"""When a rank is lost or stuck, as a collector's file says it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from otel_straggler import semconv
from otel_straggler.collector.alerting.settings import AlertsSettings
from otel_straggler.collector.commands_settings import CommandsSettings
from otel_straggler.collector.forwarding.sampling import SamplingRules
from otel_straggler.detect.scores.settings import HangSettings, ScoreSettings, VerdictSettings
from otel_straggler.errors import ConfigError, describe
from otel_straggler.model.alert import Mode
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.span_rules import SpanNames


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessSettings:
    """See :class:`HangSettings`, whose names have ``_s`` for ``_seconds``.

    Attributes:
        lost_after_seconds: without a sign of life for so long a rank is lost.
        min_timeout_seconds: no progress for less is never called stuck.
        max_timeout_seconds: for more always, unless that is usual for the section.
        start_timeout_seconds: for a rank that has not progressed yet, and for the first steps.
        unknown_timeout_seconds: for a section that was seen too seldom to know.
        give_up_seconds: a stuck or lost run stays so long after its last sign of life, unless
            somebody acknowledges it; then it is ``forgotten`` for an hour, and goes.
    """

    lost_after_seconds: float = 20.0
    min_timeout_seconds: float = 30.0
    max_timeout_seconds: float = 480.0
    start_timeout_seconds: float = 3_600.0
    unknown_timeout_seconds: float = 480.0
    give_up_seconds: float = 259_200.0

    def for_judge(self) -> HangSettings:
        values = {
            field.name.removesuffix("_seconds") + "_s": getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "give_up_seconds"
        }
        return HangSettings(**values)


MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """Where OTLP comes in. Addresses are HOST:PORT; port 0 picks a free one.

    Attributes:
        otlp_http: OTLP over HTTP, protobuf and JSON.
        otlp_grpc: OTLP over gRPC.
        max_body_bytes: of one request, after decompression; larger ones are refused.
        max_waiting_bytes: of requests not yet scored; beyond it senders are told to come back
            later. An eighth is for metrics alone, so that a flood of spans makes no rank lost.
    """

    otlp_http: str = "127.0.0.1:4318"
    otlp_grpc: str = "127.0.0.1:4317"
    max_body_bytes: int = 64 * MiB
    max_waiting_bytes: int = 256 * MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The address of the live page, /metrics, /v1/report, /healthz and /readyz.

    Attributes:
        listen: where these pages are.
        allowed_hosts: further names that a Host header may carry, beside loopback and the address.
        collector_id: value of the ``collector`` label; host name and port if empty.
        cluster: value of the ``cluster`` label of every series; no such label if empty.
        series_budget: series per run: up to half for signs of life of ranks, a quarter for cells
            of the matrix, the rest for scores, then sensors. What does not fit is folded, last that
            of ranks that are in trouble.
        keep_scores_seconds: how long a rank's last scores stay without a new window.
        decisions: whether verdicts may be dismissed and muted at this address, and maintenance
            announced.
        timeline_mib: memory for the newest windows that the live page shows, at most 360 of every
            run; all runs together, and a byte for each rank and section of a window.
    """

    listen: str = "127.0.0.1:9464"
    allowed_hosts: tuple[str, ...] = ()
    collector_id: str = ""
    cluster: str = ""
    series_budget: int = 50_000
    keep_scores_seconds: float = 900.0
    decisions: bool = True
    timeline_mib: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """Layer 1, in the words of the file; see :class:`ScoreSettings`.

    Attributes:
        window_steps: steps that are scored together.
        window_longest_seconds: a window that is so long takes no further steps, if it has five: of
            steps of 30 s, five are scored together.
        window_seconds: length of a window for spans without a step.
        grace_seconds: how long a window waits for the other ranks after the first has passed it.
        idle_seconds: without spans and heartbeats for so long, a window closes.
        threshold: a score below it lists the rank as a straggler.
        min_reference_samples: a median of fewer runs never becomes a rank's own best.
        reference_half_life_seconds: a best that is not met again doubles in this time.
        max_section_names: per run; further ones count as ``<other>``.
        max_runs: runs kept; of those that have ended or are silent the one heard of first is
            forgotten first. Further ones are turned away while all are heard of.
        max_groups: of one run, kept and turned away like runs.
        evict_run_seconds: a run that has been silent this long is evicted.
    """

    window_steps: int = 20
    window_longest_seconds: float = 120.0
    window_seconds: float = 30.0
    grace_seconds: float = 5.0
    idle_seconds: float = 30.0
    threshold: float = 0.75
    min_reference_samples: int = 5
    reference_half_life_seconds: float = 86_400.0
    max_section_names: int = 200
    max_runs: int = 100
    max_groups: int = 200
    evict_run_seconds: float = 3_600.0

    def for_scorer(self) -> ScoreSettings:
        return ScoreSettings(
            window_steps=self.window_steps,
            window_longest_s=self.window_longest_seconds,
            window_s=self.window_seconds,
            grace_s=self.grace_seconds,
            idle_s=self.idle_seconds,
            threshold=self.threshold,
            min_reference_samples=self.min_reference_samples,
            reference_half_life_s=self.reference_half_life_seconds,
            max_names=self.max_section_names,
            max_runs=2 * self.max_runs,  # as many as may be there until the next picture
            evict_s=self.evict_run_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictsSettings:
    """Layer 2, in the words of the file; see :class:`VerdictSettings`.

    Attributes:
        block_steps: steps that are summed up by one median; everything is judged as often.
        block_seconds: length of a "step" for spans that have none.
        windows_steps: lengths over which a rank is compared with its peers.
        min_slowdown: no smaller one is ever confirmed (1.03 = 3 %).
        floor_of_resolvable: nor one below so many times the smallest slowdown that can be shown.
        min_z: nor one that lies fewer robust standard deviations beyond its peers.
        page_slowdown: nobody is called for less.
        page_loss: nor for less than this part of the job's GPU time.
        min_share: a section must lose at least this part of the step.
        min_peers: smaller groups of peers say nothing; below 5, only slowdowns of 1.25 count.
        quorum: nothing is said while fewer ranks report than this part.
        warm_up_steps: left out after an observed start of an attempt.
        max_changes: changes of state kept in memory.
    """

    block_steps: int = 5
    block_seconds: float = 10.0
    windows_steps: tuple[int, ...] = (20, 100, 400)
    min_slowdown: float = 1.03
    floor_of_resolvable: float = 1.5
    min_z: float = 3.5
    page_slowdown: float = 1.10
    page_loss: float = 0.01
    min_share: float = 0.01
    min_peers: int = 3
    quorum: float = 0.8
    warm_up_steps: int = 20
    max_changes: int = 10_000

    def for_judge(self) -> VerdictSettings:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return VerdictSettings(block_s=values.pop("block_seconds"), **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeSettings:
    """Further attribute keys that say who sent and what, beside the built-in ones of
    :mod:`otel_straggler.semconv`, over which they win; of several present the first is read.

    Attributes:
        rank, world_size, local_rank, run_id, role: on a resource, a span or a data point.
        step: the optimizer step of a span.
        section: the section of a span, in place of its name.
    """

    rank: tuple[str, ...] = ()
    world_size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    run_id: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    section: tuple[str, ...] = ()

    def aliases(self) -> Aliases:
        keys = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Aliases().extended(**keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanSettings:
    """Which plain spans are scored and as what kind, by patterns of their names (globs); see
    :class:`SpanNames`. A list replaces the default.

    Attributes:
        include: names that are scored,
        exclude: unless a pattern here covers them too: spans of a whole life or step, and kernels.
        wait: spans of waiting, such as collectives; scored, never listed.
        data: spans of input.
        checkpoint: spans of saving and loading; scored, never listed.
        eval: spans of an evaluation; scored, never listed.
        other: spans of none of these kinds; a span that no list has is ``compute``.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = semconv.UNSCORED_SPANS
    wait: tuple[str, ...] = semconv.KNOWN_KINDS["wait"]
    data: tuple[str, ...] = semconv.KNOWN_KINDS["data"]
    checkpoint: tuple[str, ...] = semconv.KNOWN_KINDS["checkpoint"]
    eval: tuple[str, ...] = semconv.KNOWN_KINDS["eval"]
    other: tuple[str, ...] = semconv.KNOWN_KINDS["other"]

    def names(self) -> SpanNames:
        kinds: dict[semconv.SectionKind, tuple[str, ...]] = {
            "wait": self.wait,
            "data": self.data,
            "checkpoint": self.checkpoint,
            "eval": self.eval,
            "other": self.other,
        }
        return SpanNames(self.include, self.exclude, kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSettings:
    """Where requests go on to. A URL alone means mode "all": everything, untouched.

    Mode "sampled" keeps of the spans, byte for byte, those of ranks that a verdict (suspect,
    confirmed or flapping, also of their host) or the newest window names, those of slow steps and
    those of one trace in N; it makes the root span of each step's trace. Metrics and logs pass
    untouched in both; traces in JSON become binary protobuf in mode "sampled".

    Attributes:
        url: base URL of an OTLP/HTTP endpoint; each signal's path is added.
        mode: what is passed on; empty = "all" if there is a URL.
        max_queue_bytes: of requests that wait to be passed on; beyond it the oldest is dropped,
            and counted.
        sample_one_in: mode "sampled" keeps one trace in so many, by its id.
        slow_step_ratio: and steps that took so many times as long as the typical step of the run
            on their slowest rank.
        max_trace_spans: of one trace; further ones are left out.
        max_held_bytes: of requests that wait until their steps are scored; near it the oldest are
            decided early.
        hold_seconds: the longest wait for that.
    """

    url: str = ""
    mode: str = ""
    max_queue_bytes: int = 256 * MiB
    sample_one_in: int = 100
    slow_step_ratio: float = 1.5
    max_trace_spans: int = 2_000
    max_held_bytes: int = 256 * MiB
    hold_seconds: float = 60.0

    @property
    def is_on(self) -> bool:
        return bool(self.url) and self.mode != "off"

    @property
    def is_sampled(self) -> bool:
        return self.is_on and self.mode == "sampled"

    def rules(self) -> SamplingRules:
        return SamplingRules(
            one_in=self.sample_one_in,
            slow_ratio=self.slow_step_ratio,
            max_spans=self.max_trace_spans,
            held_bytes=self.max_held_bytes,
            hold_s=self.hold_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """What survives a restart of the collector: references, verdicts, summaries of windows.

    Attributes:
        path: the file, an SQLite database; empty = in memory, gone with the process.
        keep_days: what is older goes.
        max_mib: size of the file; the oldest windows go first, verdicts and references last.
        save_every_seconds: a collector that is killed loses so much of its state at most.
    """

    path: str = ""
    keep_days: float = 7.0
    max_mib: int = 512
    save_every_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """All of it, one slice per stage."""

    receivers: ReceiverSettings = field(default_factory=ReceiverSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    attributes: AttributeSettings = field(default_factory=AttributeSettings)
    spans: SpanSettings = field(default_factory=SpanSettings)
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    verdicts: VerdictsSettings = field(default_factory=VerdictsSettings)
    liveness: LivenessSettings = field(default_factory=LivenessSettings)
    commands: CommandsSettings = field(default_factory=CommandsSettings)
    forward: ForwardSettings = field(default_factory=ForwardSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    alerts: AlertsSettings = field(default_factory=AlertsSettings)


def parse_address(text: str, *, where: str) -> tuple[str, int]:
    """Split HOST:PORT (an IPv6 host in brackets).

    >>> parse_address("[::1]:4318", where="x")
    ('::1', 4318)

    Raises:
        ConfigError: there is no port, or it is none.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            describe(
                where=where,
                value=text,
                expected="HOST:PORT with a port of 0 to 65535",
                remedy="Use for example 127.0.0.1:4318; port 0 picks a free one.",
            )
        )
    return host, int(port)


def mode_of(settings: CollectorSettings) -> Mode:
    """Whether this collector's alerts may call somebody."""
    return "page" if settings.alerts.mode == "page" else "observe"
