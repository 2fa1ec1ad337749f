"""Metrics of ranks and runs that the collector publishes."""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv.names import OF_RUN, Metric

_OF_VERDICT: Final = ("subject_id", "scope", "rank", "node", "role", "section")

# --- from the collector -----------------------------------------------------------------------
SECTION_RELATIVE = Metric(
    "straggler.section.relative_score",
    "{score}",
    "gauge",
    "best rank's median / own median",
    labels=("section",),
)
SECTION_INDIVIDUAL = Metric(
    "straggler.section.individual_score",
    "{score}",
    "gauge",
    "own best median / own median",
    labels=("section",),
)
GPU_RELATIVE = Metric(
    "straggler.gpu.relative_score",
    "{score}",
    "gauge",
    "kernel times against the best rank",
    labels=("section",),
)
GPU_INDIVIDUAL = Metric(
    "straggler.gpu.individual_score",
    "{score}",
    "gauge",
    "kernel times against own best",
    labels=("section",),
)
KERNEL_TIME = Metric(
    "straggler.kernel.time",
    "s",
    "counter",
    "time of a kernel on the rank's GPU, of the 10 kernels that took most",
    labels=("kernel", "kernel_class"),
)
KERNEL_RUNS = Metric(
    "straggler.kernel.runs",
    "{kernel}",
    "counter",
    "how often the same kernels ran on the rank",
    labels=("kernel", "kernel_class"),
)
SECTION_MEDIAN = Metric(
    "straggler.section.median", "s", "gauge", "median time in the window", labels=("section",)
)
SECTION_SLOWDOWN = Metric(
    "straggler.section.slowdown",
    "{ratio}",
    "gauge",
    "own median / median of the role",
    labels=("section",),
)
SECTION_INFO = Metric(
    "straggler.section.info",
    "{info}",
    "gauge",
    "kind of a section of the newest window; always 1",
    labels=("kind", "section"),
    subject=OF_RUN,
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
    labels=("node",),
    subject=OF_RUN,
)
VERDICT_INFO = Metric(
    "straggler.verdict.info",
    "{info}",
    "gauge",
    "a verdict that is suspect, confirmed or flapping; always 1",
    labels=(*_OF_VERDICT, "cause", "state", "evidence"),
    subject=OF_RUN,
)
VERDICT_SLOWDOWN = Metric(
    "straggler.verdict.slowdown",
    "{ratio}",
    "gauge",
    "own time / time of the peers, of a confirmed or flapping verdict",
    labels=_OF_VERDICT,
    subject=OF_RUN,
)
VERDICT_LOSS = Metric(
    "straggler.verdict.gpu_time_lost_rate",
    "{gpu}",
    "gauge",
    "time of all ranks that the job waits for the subject, per time: so many ranks (GPUs) are lost",
    labels=_OF_VERDICT,
    subject=OF_RUN,
)
VERDICT_PAGES = Metric(
    "straggler.verdict.pages",
    "{flag}",
    "gauge",
    "1 if somebody should be called",
    labels=_OF_VERDICT,
    subject=OF_RUN,
)
VERDICT_SILENCED = Metric(
    "straggler.verdict.silenced",
    "{flag}",
    "gauge",
    "1 if somebody has dismissed or muted the verdict, so that nobody is told of it",
    labels=_OF_VERDICT,
    subject=OF_RUN,
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
    labels=("section",),
    subject=OF_RUN,
)
WORKER_SLOWDOWN = Metric(
    "straggler.worker.slowdown",
    "{ratio}",
    "gauge",
    "slowdown of the run if only this cell of data rank and pipeline stage were as it is",
    labels=("data_rank", "pipeline_stage"),
    subject=OF_RUN,
)

# --- from the collector -----------------------------------------------------------------------
LAST_HEARTBEAT = Metric(
    "straggler.last_heartbeat.timestamp", "s", "gauge", "newest heartbeat, on the collector's clock"
)
LAST_PROGRESS = Metric(
    "straggler.last_progress.timestamp", "s", "gauge", "newest progress, on the collector's clock"
)
RUN_OLDEST_HEARTBEAT = Metric(
    "straggler.run.oldest_heartbeat.timestamp",
    "s",
    "gauge",
    "newest heartbeat of the rank that was not heard for longest, of those that have not ended",
)
RUN_OLDEST_PROGRESS = Metric(
    "straggler.run.oldest_progress.timestamp",
    "s",
    "gauge",
    "newest progress of the rank that has made none for longest, of those that have not ended",
)
RUN_STEP = Metric("straggler.run.step", "{step}", "gauge", "newest step that any rank reported")
RANK_LAST_SCORED = Metric(
    "straggler.rank.last_scored.timestamp", "s", "gauge", "when the rank last got scores"
)
RANK_STEP = Metric("straggler.rank.step", "{step}", "gauge", "newest step the rank reported")
RANK_STATE = Metric(
    "straggler.rank.state",
    "{state}",
    "gauge",
    "1 for the state that the rank is in: starting, ok, late, stuck, lost or finished",
    labels=("state",),
)
RANK_TIMEOUT = Metric(
    "straggler.rank.timeout",
    "s",
    "gauge",
    "what the rank may take for what it does before it is stuck",
)
RANK_CULPRIT = Metric(
    "straggler.rank.culprit",
    "{flag}",
    "gauge",
    "1 for a rank that a hang waits for, by why: lost, never_joined or left_early; at most 20 of "
    "a run",
    labels=("why",),
)
RUN_STATE = Metric(
    "straggler.run.state",
    "{state}",
    "gauge",
    "1 for the state that the run is in: starting, training, stuck, partly_lost, lost, finished, "
    "cancelled, preempted, failed or forgotten; 0 for the others",
    labels=("state",),
)
RUN_HUNG = Metric(
    "straggler.run.hung",
    "{flag}",
    "gauge",
    "1 while the run as a whole does not get on and nobody has acknowledged it",
)
RUN_HANG_INFO = Metric(
    "straggler.run.hang_info",
    "{info}",
    "gauge",
    "why the ranks of a run wait, and the same as a sentence; always 1",
    labels=("why", "sentence"),
)
RUN_RANKS = Metric(
    "straggler.run.ranks", "{rank}", "gauge", "ranks of the run, by their state", labels=("state",)
)
RUN_PAGES = Metric(
    "straggler.run.pages", "{flag}", "gauge", "1 if alerts about the run may call somebody"
)
RUN_RECORDS_DROPPED = Metric(
    "straggler.run.records.dropped",
    "{record}",
    "counter",
    "records that ranks of the run lost while they were heard here, by reason",
    labels=("reason",),
)
RUN_INFO = Metric(
    "straggler.run.info",
    "{info}",
    "gauge",
    "team and attempt; always 1",
    labels=("team", "attempt"),
)
MAINTENANCE_UNTIL = Metric(
    "straggler.maintenance.until.timestamp",
    "s",
    "gauge",
    "when maintenance of the host ends",
    labels=("node", "reason", "by"),
    subject=(),
)
RUN_STARTED = Metric(
    "straggler.run.start.timestamp",
    "s",
    "gauge",
    "when the newest attempt of the run was first heard of, on the collector's clock",
)
RUN_CHECKPOINT = Metric(
    "straggler.run.last_checkpoint.timestamp",
    "s",
    "gauge",
    "when a section of kind checkpoint last ended on any rank, on that rank's clock",
)
RUN_OPEN_SECTIONS = Metric(
    "straggler.run.open_sections",
    "{rank}",
    "gauge",
    "ranks that have not ended, by the section that they last said was open; at most 20 sections, "
    "the others as `<other>`",
    labels=("section",),
)
RUN_WORLD_SIZE = Metric("straggler.run.world_size", "{rank}", "gauge", "ranks expected")
RUN_RANKS_REPORTING = Metric(
    "straggler.run.ranks_reporting", "{rank}", "gauge", "ranks in the newest window"
)
RUN_FINISHED = Metric(
    "straggler.run.finished.timestamp", "s", "gauge", "when the last rank of the run ended"
)
RUN_COVERAGE = Metric(
    "straggler.run.coverage", "{ratio}", "gauge", "ranks scored / ranks expected, newest window"
)
RUN_SLOWDOWN = Metric(
    "straggler.run.slowdown",
    "{ratio}",
    "gauge",
    "time of the run / time if all ranks of a role and all stages were equal",
)
RUN_WASTE = Metric("straggler.run.waste", "{ratio}", "gauge", "1 - 1 / slowdown of the run")
RUN_M_W = Metric(
    "straggler.run.loss_by_worst_workers",
    "{ratio}",
    "gauge",
    "M_W: part of the loss that goes if the worst 3 % of the workers took the mean of all",
)
RUN_M_S = Metric(
    "straggler.run.loss_by_last_stage",
    "{ratio}",
    "gauge",
    "M_S: part of the loss that goes if the last pipeline stage took the mean of all; above 1 "
    "where the other stages take less than that, below 0 where it does itself",
)
RUN_GPU_TIME_LOST = Metric(
    "straggler.run.gpu_time_lost",
    "s",
    "counter",
    "time lost to inequality and hangs, of all ranks together: GPU time where each has a GPU",
)
RUN_STEP_TIME = Metric(
    "straggler.run.step_time", "s", "gauge", "time of a step: median over ranks and newest steps"
)
RUN_SLOWEST_STEP = Metric(
    "straggler.run.slowest_step_time",
    "s",
    "gauge",
    "time of a step of the slowest rank: median over the newest steps",
)
RUN_RESOLVABLE = Metric(
    "straggler.run.resolvable_slowdown",
    "{ratio}",
    "gauge",
    "smallest slowdown that 20 steps can show",
)
RUN_IDENTITY_CLASHES = Metric(
    "straggler.run.identity_clashes",
    "{rank}",
    "gauge",
    "ranks claimed by two live sessions",
    labels=("run_id",),
    subject=(),
)

# --- from the collector, of all ranks together -------------------------------------------------
SECTION_WORST = Metric(
    "straggler.section.worst_score",
    "{score}",
    "gauge",
    "the relative score of the 20 ranks that are lowest in the section; not of sections in which "
    "ranks wait, save or evaluate. Never folded",
    labels=("section",),
)
OVER_RANKS: Final = {
    metric.name: Metric(
        f"{metric.name}.over_ranks",
        metric.unit,
        "gauge",
        f"quantiles over ranks: {metric.meaning}",
        labels=("ranks_below", *(name for name in metric.labels or () if name == "section")),
        subject=OF_RUN,
    )
    for metric in (
        SECTION_RELATIVE,
        SECTION_INDIVIDUAL,
        SECTION_MEDIAN,
        SECTION_SLOWDOWN,
        GPU_RELATIVE,
        GPU_INDIVIDUAL,
        WORKER_SLOWDOWN,
    )
}
"""Label ``ranks_below``: so much of the ranks (0.05: 5 %) is lower; it is not called ``quantile``,
which Prometheus keeps for summaries. The first and the third are always published; each other one
stands for ranks whose series were folded by the budget."""
