"""What a name on the wire is: an attribute or a metric, which knows its meaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal


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


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its OTLP name, UCUM unit and meaning.

    ``prometheus_name`` follows OpenTelemetry's translator (UnderscoreEscapingWithSuffixes), so a
    metric has one name whether it is scraped here or arrives through an OTLP endpoint.

    >>> Metric("straggler.caused_wait", "s", "counter", "...").prometheus_name
    'straggler_caused_wait_seconds_total'
    """

    name: str
    unit: str
    kind: MetricKind
    meaning: str

    prometheus_name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        base = self.name.replace(".", "_") + _UNIT_SUFFIX.get(self.unit, "")
        name = base + "_total" if self.kind == "counter" else base
        object.__setattr__(self, "prometheus_name", name)
