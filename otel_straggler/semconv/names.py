"""Attributes and metrics, which know their meaning; and constants that both ends agree on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

AttributeValue: TypeAlias = str | int | float | bool


class Attribute(str):
    """An attribute key that knows its meaning. It is a plain ``str`` to everybody else."""

    __slots__ = ("meaning",)
    meaning: str

    def __new__(cls, key: str, meaning: str) -> Attribute:
        self = super().__new__(cls, key)
        self.meaning = meaning
        return self


MetricKind = Literal["gauge", "counter", "histogram"]
_UNIT_SUFFIX: Final = {
    "s": "_seconds",
    "By": "_bytes",
    "W": "_watts",
    "J": "_joules",
    "Cel": "_celsius",
    "Hz": "_hertz",
    "1": "_ratio",
}


OF_RUN: Final = ("run_id", "job_name", "group")
"""Labels of series about one group of a run."""
OF_RANK: Final = (*OF_RUN, "rank", "node", "role")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its OTLP name, UCUM unit, meaning and labels.

    ``prometheus_name`` follows OpenTelemetry's translator (UnderscoreEscapingWithSuffixes), so a
    metric has one name whether it is scraped here or arrives through an OTLP endpoint.

    >>> Metric("straggler.caused_wait", "s", "counter", "...").prometheus_name
    'straggler_caused_wait_seconds_total'

    Attributes:
        labels: on the collector's ``/metrics``, besides those of the subject; attribute keys stand
            for the labels made of them. None: the collector does not publish it.
        subject: labels of what it is about; None: by its name the collector, a run or a rank.
        attributes: of its data points where a rank sends it, unless it passes through: then they
            are its labels.
    """

    name: str
    unit: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] | None = ()
    subject: tuple[str, ...] | None = None
    attributes: tuple[str, ...] = ()

    prometheus_name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base = self.name.replace(".", "_") + _UNIT_SUFFIX.get(self.unit, "")
        name = base + "_total" if self.kind == "counter" else base
        object.__setattr__(self, "prometheus_name", name)

    @property
    def own_labels(self) -> tuple[str, ...]:
        """Labels on ``/metrics`` besides those of the subject, as Prometheus has them."""
        return tuple(label.replace(".", "_") for label in self.labels or ())

    @property
    def published_labels(self) -> tuple[str, ...]:
        """All labels on ``/metrics`` but ``collector`` and ``cluster``, which every series has."""
        own = self.own_labels
        if self.subject is not None:
            return (*own, *self.subject)
        about = self.name.split(".")[1]
        if about == "collector":
            return own
        return (*own, *(OF_RUN if about in {"run", "verdict", "host", "worker"} else OF_RANK))


def gauge(
    name: str, unit: str, meaning: str, *labels: str, subject: tuple[str, ...] | None = None
) -> Metric:
    """A metric that the collector publishes; see :class:`Metric`."""
    return Metric(name, unit, "gauge", meaning, labels, subject)


def counter(name: str, unit: str, meaning: str, *labels: str) -> Metric:
    """A running total that the collector publishes."""
    return Metric(name, unit, "counter", meaning, labels)


def sent(
    kind: MetricKind,
    name: str,
    unit: str,
    meaning: str,
    *attributes: str,
    labels: tuple[str, ...] | None = None,
) -> Metric:
    """A metric that ranks send; the collector publishes it if it has labels."""
    return Metric(name, unit, kind, meaning, labels, attributes=attributes)


RUNBOOK_PATH: Final = "/runbook"
"""Of a collector; ``?alert=`` chooses a chapter."""
EXEMPLAR_TRACE: Final = "trace_id"
EXEMPLAR_STEP: Final = "step"
"""Labels of an exemplar on ``/metrics``."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SCOPE_NAME: Final = "otel_straggler"
SCORER_HEADER: Final = "otel-straggler-scorer"
"""Response header of a collector that scores; its value is the wire version."""
WIRE_VERSION: Final = "1"
PAGE_HEADER: Final = "otel-straggler-page"
"""Response header of the same: URL of its live page. Without a host, that of the collector."""
COMMANDS_PATH: Final = "/v1/commands"
"""Where a rank asks its collector what it wants (OTLP/HTTP), and a person asks the collector."""
COMMANDS_TOKEN_HEADER: Final = "otel-straggler-token"  # noqa: S105  a name, no secret
"""Request header of both; a header of its own, since ``authorization`` may be a gateway's."""
DUMP_STACKS: Final = "dump_stacks"
DUMP_FLIGHT_RECORD: Final = "dump_flight_record"
PROFILE: Final = "profile"
HANG_VERBS: Final = (DUMP_STACKS, DUMP_FLIGHT_RECORD)
"""What a person may ask for, too."""
VERBS: Final = (*HANG_VERBS, PROFILE)
"""All that a collector can ask of a rank."""
COMMANDS_PER_HOUR: Final = {DUMP_STACKS: 30, DUMP_FLIGHT_RECORD: 60, PROFILE: 4}
"""How often a rank does in any hour what it is asked for, whoever asks; it refuses what is more."""
MAX_PROFILED_STEPS: Final = 100
"""Of one profile that a rank makes for a collector: its events are in memory until it ends."""
REFUSALS: Final = {
    "unknown": "an older version, or OTEL_STRAGGLER_EVIDENCE_DIR is not set there",
    "limit": "a rank does that at most "
    + ", ".join(f"{n} times an hour ({verb})" for verb, n in COMMANDS_PER_HOUR.items()),
    "busy": "the rank is still making a profile; it makes one at a time",
    "steps": f"a rank profiles at most {MAX_PROFILED_STEPS} steps for a collector",
}
"""Why a rank has refused a command, by what stands in ``why`` of its next poll."""

CHECKPOINT_REQUEST_FILE: Final = "OTEL_STRAGGLER_CHECKPOINT_REQUEST_FILE"
"""Variable with the path by which an agent asks the ranks of its node for a checkpoint."""
CHECKPOINT_KEY_FILE: Final = "OTEL_STRAGGLER_CHECKPOINT_KEY_FILE"
"""Variable with the path of the file whose keys sign manifests of checkpoints."""
CHECKPOINT_SERVED: Final = ".served"
"""Suffix of a file next to it, there while a rank would answer."""
CHECKPOINT_SAVED: Final = ".saved"
"""Suffix of a file that is written once a checkpoint that was asked for is complete."""

FORMAT_VERSION: Final = 1
"""``schema_version`` of the JSON that ``score --json`` and ``/v1/report`` share."""

TRACKER_SCALARS: Final = {
    "worst_score": "time of the peers / time of the slowest rank: 1.0 = all alike, 0.5 = one "
    "takes twice as long",
    "worst_rank": "which rank that is",
    "slowdown": "actual step / step with equal work and slow ranks like their peers",
    "gpu_seconds_lost": "time of all ranks (of GPUs, where each has one) lost by waiting since the "
    "start",
    "gpu_seconds_lost_per_hour": "the same that is lost now, per hour",
    "step_s": "median seconds per step",
    "slowest_step_s": "seconds of own work per step, without waiting, of the rank with most of it",
    "ranks_called_slow": "ranks that are called slow, by a verdict on them or on their host",
    "ranks_reporting": "ranks with data in the newest window",
}
"""Scalars for experiment trackers, and what ``/v1/scalars`` has; a tracker gets them under
:data:`TRACKER_PREFIX`. Missing where not known."""
TRACKER_PREFIX: Final = "straggler/"
