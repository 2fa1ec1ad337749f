"""Pieces of PromQL for dashboards, for Prometheus 2.42 and later.

Series are joined with ``by``, so that labels of a scrape and a second collector of the same run
make no second line. What may be many (ranks, sections) is cut to the worst few, chosen once for the
whole range: chosen at each step, lines would have holes.

Values of variables are patterns between backticks (`is_chosen`), where PromQL takes every character
as it is and the format ``regex`` alone decides: Grafana's escaping between double quotes differs by
version. Only a name with a backtick in it cannot be queried.

No query over a range looks at all ranks: for 10,000 it takes Prometheus seconds. Series about all
ranks together (`collector/metrics/series_choice.py`) give the quantiles and the worst ranks; a
hidden variable (`WORST_RANKS`) names these, and only they are looked up.
"""

from __future__ import annotations

from typing import Final

from otel_straggler import semconv
from otel_straggler.semconv import Metric

RUN: Final = "cluster, job_name, run_id, group"
RANK: Final = f"{RUN}, rank, node"
SECTION_OF_RANK: Final = f"{RANK}, section"
MAX_LINES: Final = 20
WORST_RANKS: Final = "worst_rank"
"""Variable of a dashboard with :func:`worst` ranks; see :func:`which_ranks`."""
ALL_OR_SOME: Final = "|.*"
""""All" of a variable whose choice :func:`is_narrowed` checks. A pattern."""


def is_chosen(*names: str) -> str:
    """Matchers for the values of variables: one, several, or all.

    >>> is_chosen("cluster", "run_id")
    'cluster=~`${cluster:regex}`, run_id=~`${run_id:regex}`'
    """
    return ", ".join(f"{name}=~`${{{name}:regex}}`" for name in names)


def is_narrowed(name: str) -> str:
    """Matchers for the value of a variable that is not "All"; for "All" no series matches.

    Before a value ``.^`` makes a pattern that nothing matches, before `ALL_OR_SOME` one that
    everything does.

    >>> is_narrowed("node")
    'node=~`${node:regex}`, node!~`.^${node:regex}`'
    """
    return f"{is_chosen(name)}, {name}!~`.^${{{name}:regex}}`"


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


def increase(metric: Metric, by: str) -> str:
    """Growth of a counter in the whole range of the dashboard."""
    return f"max by ({by}) (increase({series(metric)}[$__range]))"


def increase_to_end(metric: Metric, by: str) -> str:
    """The same at every step of a query over a range: to choose lines for the whole of it."""
    return f"max by ({by}) (increase({series(metric)}[$__range] @ end()))"


def rate(metric: Metric, by: str, chosen: str = OF_RUN) -> str:
    """Growth of a counter per second; of several with the same labels, the fastest one."""
    return f"max by ({by}) (rate({series(metric, chosen)}[$__rate_interval]))"


def total_rate(metric: Metric, by: str, chosen: str = OF_RUN) -> str:
    """The same, of several counters the sum."""
    return f"sum by ({by}) (rate({series(metric, chosen)}[$__rate_interval]))"


def total_slope(metric: Metric, by: str, chosen: str = OF_RUN) -> str:
    """Growth of a gauge per second, of several the sum. Where it falls, as time of steps that are
    done again is lost afterwards, that is no growth; to ``rate`` it would be a restart from 0."""
    return f"sum by ({by}) (clamp_min(deriv({series(metric, chosen)}[$__rate_interval]), 0))"


def lowest(metric: Metric, by: str, chosen: str) -> str:
    """Sections that were lowest at any time of the range, over the whole range; see `no_work`."""
    deepest = f"min by ({by}) (min_over_time({series(metric, chosen)}[$__range] @ end()))"
    return f"{newest(metric, by, chosen)} and on ({by}) bottomk({MAX_LINES}, {deepest} {no_work()})"


def worst() -> str:
    """Rows of sections of ranks that were lowest at any time of the range, with their lowest score:
    among the collector's worst; of chosen nodes, among all."""
    of_nodes = series(semconv.SECTION_RELATIVE, OF_SECTIONS, is_narrowed("node"))
    of_all = series(semconv.SECTION_WORST, OF_SECTIONS, is_chosen("node"))
    low, worst = (
        f"min by ({SECTION_OF_RANK}) (min_over_time({scores}[$__range] @ end()))"
        for scores in (of_nodes, of_all)
    )
    return f"bottomk({MAX_LINES}, {low} {no_work()} or {worst})"


def worst_over_time() -> str:
    """The scores of :func:`worst` rows over the whole range."""
    of_ranks = f"{OF_SECTIONS}, {is_chosen('node')}, rank=~`${{{WORST_RANKS}:regex}}`"
    whole = newest(semconv.SECTION_RELATIVE, SECTION_OF_RANK, of_ranks)
    worst_of_all = newest(
        semconv.SECTION_WORST, SECTION_OF_RANK, f"{OF_SECTIONS}, {is_chosen('node')}"
    )
    return f"({whole} or {worst_of_all}) and on ({SECTION_OF_RANK}) {worst()}"


def which_ranks() -> str:
    """The ranks of :func:`worst` rows; queried before the panels, so that each reads few series."""
    return f"group by (rank) ({worst()})"


def no_work() -> str:
    """Exclude sections in which ranks wait, save or evaluate: a rank that is slow there is a
    victim."""
    info = series(semconv.SECTION_INFO, more='kind=~"wait|checkpoint|eval"')
    sections = f"max by ({RUN}, section) (max_over_time({info}[$__range] @ end()))"
    return f"unless on ({RUN}, section) {sections}"


def highest(metric: Metric, by: str, chosen: str, limit: int = MAX_LINES, above: str = "") -> str:
    """Series that were highest at any time of the range; ``above`` filters them, as ``> 0``."""
    peak = f"max by ({by}) (max_over_time({series(metric, chosen)}[$__range] @ end()))"
    return f"{newest(metric, by, chosen)} and on ({by}) topk({limit}, {peak}{above})"


def over_ranks(metric: Metric, quantile: float, by: str, chosen: str) -> str:
    """A quantile over all ranks, from the collector."""
    return newest(semconv.OVER_RANKS[metric.name], by, chosen, f'ranks_below="{quantile}"')
