"""Prometheus' text format 0.0.4."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.semconv import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_LABELLED = 65_536
"""Ranks of all runs whose labels are cached; about 400 bytes each."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def label(name: str, value: object) -> str:
    r"""One label, escaped.

    >>> label("node", 'a"b\\c')
    'node="a\\"b\\\\c"'
    """
    return f'{name}="{str(value).translate(_ESCAPES)}"'


def labels(**values: object) -> str:
    """Several labels, in order.

    >>> labels(run_id="r", rank=3)
    'run_id="r",rank="3"'
    """
    return ",".join(label(name, value) for name, value in values.items())


@lru_cache(maxsize=MAX_LABELLED)
def rank_labels(source: Source) -> str:
    return labels(
        run_id=source.run_id,
        job_name=source.job,
        group=source.group,
        rank=source.rank,
        node=source.node,
        role=source.role,
    )


def constant_labels(collector_id: str, cluster: str = "") -> str:
    """The labels at the end of every line of a collector.

    >>> constant_labels("c"), constant_labels("c", "eu")
    ('collector="c"', 'collector="c",cluster="eu"')
    """
    return labels(collector=collector_id, **({"cluster": cluster} if cluster else {}))


def sample(metric: Metric, label_text: str, value: float) -> str:
    """One line; ``value`` must be finite."""
    return f"{metric.prometheus_name}{{{label_text}}} {value!r}\n"


def only_runs(page: bytes, prefix: str) -> bytes:
    """The lines about runs whose names begin so; what is about no run, or the collector, is left
    out.

    >>> page = b'# TYPE a gauge\\na{run_id="x/1",job="j"} 1\\na{run_id="y/1"} 2\\na{node="n"} 3\\n'
    >>> only_runs(page, "x/")
    b'# TYPE a gauge\\na{run_id="x/1",job="j"} 1\\n'
    """
    named = re.escape(label("run_id", prefix)[:-1].encode())
    is_wanted = re.compile(rb"# (?:HELP|TYPE|EOF)|[^{]*\{(?:.*,)?" + named).match
    return b"".join(line for line in page.splitlines(keepends=True) if is_wanted(line))


class Families:
    """Lines by metric, as the format groups them."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._lines: dict[str, list[str]] = {}

    def add(self, metric: Metric, label_text: str, value: float) -> None:
        lines = self._lines.get(metric.name)
        if lines is None:
            lines = self._lines_of(metric)
        lines.append(sample(metric, label_text, value))

    def attach(self, metric: Metric, label_text: str, exemplar: str) -> None:
        """Add an exemplar to the line with these labels, if there is one, as a comment after it:
        OpenMetrics alone has exemplars (``exposition.py``)."""
        lines = self._lines.get(metric.name, [])
        begin = f"{metric.prometheus_name}{{{label_text}}} "
        for at, line in enumerate(lines):
            if line.startswith(begin):
                lines[at] = f"{line}# {exemplar}\n"

    def extend(self, other: Families) -> None:
        for name, lines in other._lines.items():
            self._lines_of(other._metrics[name]).extend(lines)

    def __len__(self) -> int:
        return sum(len(lines) for lines in self._lines.values())

    def total_of(self, metric: Metric) -> float:
        """The sum of the values of a metric."""
        return sum(float(line.rpartition(" ")[2]) for line in self._lines.get(metric.name, ()))

    def keep_first(self, limit: int) -> dict[Metric, int]:
        """Keep ``limit`` lines of the metrics that were added first; the number of lines dropped
        of each. The count of folded series stays."""
        dropped: dict[Metric, int] = {}
        left = limit
        for name, metric in self._metrics.items():
            if name == semconv.COLLECTOR_SERIES_FOLDED.name:
                continue
            lines = self._lines[name]
            if len(lines) > left:
                dropped[metric] = len(lines) - left
                del lines[left:]
            left -= len(lines)
        return dropped

    def _lines_of(self, metric: Metric) -> list[str]:
        self._metrics.setdefault(metric.name, metric)
        return self._lines.setdefault(metric.name, [])

    def render(self) -> bytes:
        """
        >>> families = Families()
        >>> families.add(Metric("a.b", "s", "gauge", "what it is"), 'x="1"', 2)
        >>> print(families.render().decode(), end="")
        # HELP a_b_seconds what it is
        # TYPE a_b_seconds gauge
        a_b_seconds{x="1"} 2
        """
        parts: list[str] = []
        for name in sorted(self._lines):
            parts.extend(_header(self._metrics[name]))
            parts.extend(self._lines[name])
        return "".join(parts).encode()


def _header(metric: Metric) -> Iterable[str]:
    name = metric.prometheus_name
    meaning = metric.meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {meaning}\n", f"# TYPE {name} {metric.kind}\n"
