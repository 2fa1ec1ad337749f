"""Whether our scores are NVRx's, over windows of random statistics."""

from __future__ import annotations

import random
from typing import Any

from otel_straggler.detector import Statistic
from otel_straggler.model.observation import Section
from otel_straggler.report.peers import TorchPeers
from otel_straggler.report.reporter import Reporter, ReportSettings
from otel_straggler.report.statistics import times_of

WINDOWS = 50
Json = dict[str, Any]


def agreement() -> Json:
    """The largest relative difference of any score; collective, on all ranks."""
    import torch.distributed as dist
    from nvidia_resiliency_ext.straggler.reporting import ReportGenerator
    from nvidia_resiliency_ext.straggler.statistics import Statistic as Theirs

    generator = ReportGenerator(["relative_perf_scores", "individual_perf_scores"])
    reporter = Reporter(ReportSettings())
    rng = random.Random(dist.get_rank())
    largest, compared = 0.0, 0
    for _ in range(WINDOWS):
        sections = {f"s{n}": _statistics(rng) for n in range(8)}
        kernels = {f"k{n}": _statistics(rng) for n in range(24) if rng.random() < 0.95}
        their = generator.generate_report(_keyed(sections, Theirs), _keyed(kernels, Theirs))
        our = reporter.score(
            TorchPeers(),
            times_of(_keyed(sections, Statistic), 1e-3),
            [Section(name) for name in sections],
            times_of(_keyed(kernels, Statistic), 1e-6),
            0,
        )
        if our is None:
            continue
        for rank in our.ranks:
            pairs = [
                (their.gpu_relative_perf_scores[rank], our.gpu_relative[rank]),
                (their.gpu_individual_perf_scores[rank], our.gpu_individual[rank]),
            ]
            for at, each in enumerate(our.sections):
                relative = their.section_relative_perf_scores[each.name][rank]
                individual = their.section_individual_perf_scores[each.name][rank]
                pairs.append((relative, our.section_relative[rank, at]))
                pairs.append((individual, our.section_individual[rank, at]))
            defined = [(t, o) for t, o in pairs if t == t and o == o]
            compared += len(defined)
            largest = max(largest, *(abs(t - o) / o for t, o in defined))
    return {"scores_compared": compared, "largest_relative_difference": largest}


def _statistics(rng: random.Random) -> tuple[float, float, int]:
    return rng.uniform(0.5, 50.0), rng.uniform(0.5, 50.0), rng.randrange(5, 8000)


def _keyed(summaries: dict[str, tuple[float, float, int]], keys: Any) -> Json:
    return {
        name: {keys.MED: median, keys.AVG: mean, keys.NUM: runs}
        for name, (median, mean, runs) in summaries.items()
    }
