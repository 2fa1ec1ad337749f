"""What the collector found: scores, verdicts, waits."""

from __future__ import annotations

from otel_straggler.semconv.names import Metric

# --- from the collector -----------------------------------------------------------------------
SECTION_RELATIVE = Metric(
    "straggler.section.relative_score", "{score}", "gauge", "best rank's median / own median"
)
SECTION_INDIVIDUAL = Metric(
    "straggler.section.individual_score", "{score}", "gauge", "own best median / own median"
)
GPU_RELATIVE = Metric(
    "straggler.gpu.relative_score", "{score}", "gauge", "kernel times against the best rank"
)
GPU_INDIVIDUAL = Metric(
    "straggler.gpu.individual_score", "{score}", "gauge", "kernel times against own best"
)
KERNEL_TIME = Metric(
    "straggler.kernel.time",
    "s",
    "counter",
    "time of a kernel on the rank's GPU, of the 10 kernels that took most",
)
KERNEL_RUNS = Metric(
    "straggler.kernel.runs", "{kernel}", "counter", "how often the same kernels ran on the rank"
)
SECTION_MEDIAN = Metric("straggler.section.median", "s", "gauge", "median time in the window")
SECTION_SLOWDOWN = Metric(
    "straggler.section.slowdown", "{ratio}", "gauge", "own median / median of the role"
)
SECTION_INFO = Metric(
    "straggler.section.info",
    "{info}",
    "gauge",
    "kind of a section of the newest window; always 1",
)
RANK_STRAGGLING = Metric(
    "straggler.rank.straggling",
    "{flag}",
    "gauge",
    "1 if the verdict on the rank is confirmed or flapping",
)
HOST_STRAGGLING = Metric(
    "straggler.host.straggling",
    "{flag}",
    "gauge",
    "1 if the verdict on the host is confirmed or flapping",
)
VERDICT_INFO = Metric(
    "straggler.verdict.info",
    "{info}",
    "gauge",
    "a verdict that is suspect, confirmed or flapping; always 1",
)
VERDICT_SLOWDOWN = Metric(
    "straggler.verdict.slowdown",
    "{ratio}",
    "gauge",
    "own time / time of the peers, of a confirmed or flapping verdict",
)
VERDICT_LOSS = Metric(
    "straggler.verdict.gpu_time_lost_rate",
    "{gpu}",
    "gauge",
    "time of all ranks that the job waits for the subject, per time: so many ranks (GPUs) are lost",
)
VERDICT_PAGES = Metric(
    "straggler.verdict.pages", "{flag}", "gauge", "1 if somebody should be called"
)
VERDICT_SILENCED = Metric(
    "straggler.verdict.silenced",
    "{flag}",
    "gauge",
    "1 if somebody has dismissed or muted the verdict, so that nobody is told of it",
)
CAUSED_WAIT = Metric(
    "straggler.caused_wait", "s", "counter", "what its peers waited for the rank that came last"
)
SUFFERED_WAIT = Metric("straggler.suffered_wait", "s", "counter", "what the rank waited for others")
SECTION_EXPOSED = Metric(
    "straggler.section.exposed_time",
    "s",
    "gauge",
    "what the section adds to the step on the slowest path, per step",
)
WORKER_SLOWDOWN = Metric(
    "straggler.worker.slowdown",
    "{ratio}",
    "gauge",
    "slowdown of the run if only this cell of data rank and pipeline stage were as it is",
)
