"""Pieces of PromQL for pages. Everything is accepted by Prometheus 2.42.

Series are put together with ``by``, so that labels of a scrape and a second collector of the same
run make no second line. What may be many (ranks, sections) is cut to the worst few, chosen once
for the whole range: chosen at each step, lines would have holes.

Values of variables are patterns between backticks (`is_chosen`). What Grafana makes safe between
double quotes differs by its version and by whether a variable may be several: a quote in a name
broke the query, or found nothing. Between backticks PromQL takes every character as it is, so the
format ``regex`` alone decides. Only a name that has a backtick in it cannot be asked for.
"""

from __future__ import annotations

from typing import Final

from otel_straggler import semconv
from otel_straggler.semconv import Metric

RUN: Final = "cluster, job_name, run_id, group"
RANK: Final = f"{RUN}, rank, node"
SECTION_OF_RANK: Final = f"{RANK}, section"
MOST_LINES: Final = 20


def is_chosen(*names: str) -> str:
    """Matchers for the values of variables: one, several, or all that the page says.

    >>> is_chosen("cluster", "run_id")
    'cluster=~`${cluster:regex}`, run_id=~`${run_id:regex}`'
    """
    return ", ".join(f"{name}=~`${{{name}:regex}}`" for name in names)


OF_RUN: Final = is_chosen("cluster", "job_name", "run_id")
OF_SECTIONS: Final = f"{OF_RUN}, {is_chosen('section')}"
OF_RANK: Final = f"{OF_RUN}, {is_chosen('node', 'rank')}"
OF_COLLECTORS: Final = is_chosen("cluster", "collector")


def series(metric: Metric, chosen: str = OF_RUN, more: str = "") -> str:
    """
    >>> series(semconv.RUN_HUNG, 'run_id="$run_id"')
    'straggler_run_hung{run_id="$run_id"}'
    """
    return f"{metric.prometheus_name}{{{', '.join(filter(None, (chosen, more)))}}}"


def newest(metric: Metric, by: str, chosen: str = OF_RUN, more: str = "") -> str:
    return f"max by ({by}) ({series(metric, chosen, more)})"


def growth(metric: Metric, by: str, chosen: str = OF_RUN, more: str = "") -> str:
    """What a counter gained in the whole range of the page."""
    return f"max by ({by}) (increase({series(metric, chosen, more)}[$__range]))"


def growth_to_end(metric: Metric, by: str, chosen: str = OF_RUN) -> str:
    """The same at every step of a query over a range: to choose lines for the whole of it."""
    return f"max by ({by}) (increase({series(metric, chosen)}[$__range] @ end()))"


def pace(metric: Metric, by: str, chosen: str = OF_RUN, more: str = "") -> str:
    """What a counter gains a second; of several counters with the same labels, the fastest."""
    return f"max by ({by}) (rate({series(metric, chosen, more)}[$__rate_interval]))"


def total_pace(metric: Metric, by: str, chosen: str = OF_RUN) -> str:
    """The same, of several counters the sum."""
    return f"sum by ({by}) (rate({series(metric, chosen)}[$__rate_interval]))"


def lowest(metric: Metric, by: str, chosen: str, most: int = MOST_LINES) -> str:
    """Sections that were lowest at any time of the range, over the whole range; see `no_work`."""
    deepest = f"min by ({by}) (min_over_time({series(metric, chosen)}[$__range] @ end()))"
    return f"{newest(metric, by, chosen)} and on ({by}) bottomk({most}, {deepest} {no_work()})"


def no_work() -> str:
    """Takes sections away in which ranks wait, save or evaluate: who is slow there is a victim."""
    told = series(semconv.SECTION_INFO, more='kind=~"wait|checkpoint|eval"')
    sections = f"max by ({RUN}, section) (max_over_time({told}[$__range] @ end()))"
    return f"unless on ({RUN}, section) {sections}"


def highest(metric: Metric, by: str, chosen: str, most: int = MOST_LINES, least: str = "") -> str:
    """Series that were highest at any time of the range; ``least`` filters them, as ``> 0``."""
    peak = f"max by ({by}) (max_over_time({series(metric, chosen)}[$__range] @ end()))"
    return f"{newest(metric, by, chosen)} and on ({by}) topk({most}, {peak}{least})"


def over_ranks(metric: Metric, quantile: float, by: str, chosen: str) -> str:
    """A quantile over all ranks, however many series the collector's budget left of them."""
    folded = newest(semconv.OVER_RANKS[metric.name], by, chosen, f'quantile="{quantile}"')
    whole = f"quantile by ({by}) ({quantile}, {newest(metric, f'{by}, rank', chosen)})"
    return f"({folded} or {whole})"
