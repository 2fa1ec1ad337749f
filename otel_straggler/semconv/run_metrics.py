"""Metrics of ranks and runs that the collector publishes."""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv.names import OF_RUN, Metric, counter, gauge

_OF_VERDICT: Final = ("subject_id", "scope", "rank", "node", "role", "section")

# --- from the collector -----------------------------------------------------------------------
SECTION_RELATIVE = gauge(
    "straggler.section.relative_score", "{score}", "best rank's median / own median", "section"
)
SECTION_INDIVIDUAL = gauge(
    "straggler.section.individual_score", "{score}", "own best median / own median", "section"
)
GPU_RELATIVE = gauge(
    "straggler.gpu.relative_score", "{score}", "kernel times against the best rank", "section"
)
GPU_INDIVIDUAL = gauge(
    "straggler.gpu.individual_score", "{score}", "kernel times against own best", "section"
)
KERNEL_TIME = counter(
    "straggler.kernel.time",
    "s",
    "time of the rank's 10 costliest kernels",
    "kernel",
    "kernel_class",
)
KERNEL_RUNS = counter(
    "straggler.kernel.runs", "{kernel}", "executions of the same kernels", "kernel", "kernel_class"
)
SECTION_MEDIAN = gauge("straggler.section.median", "s", "median time in the window", "section")
SECTION_SLOWDOWN = gauge(
    "straggler.section.slowdown", "{ratio}", "own median / median of the role", "section"
)
SECTION_INFO = gauge(
    "straggler.section.info",
    "{info}",
    "kind of a section; always 1",
    "kind",
    "section",
    subject=OF_RUN,
)
RANK_STRAGGLING = gauge(
    "straggler.rank.straggling", "{flag}", "1 if the verdict on the rank is confirmed or flapping"
)
HOST_STRAGGLING = gauge(
    "straggler.host.straggling",
    "{flag}",
    "1 if the host's verdict is confirmed or flapping",
    "node",
)
VERDICT_INFO = gauge(
    "straggler.verdict.info",
    "{info}",
    "a suspect, confirmed or flapping verdict; always 1",
    *_OF_VERDICT,
    "cause",
    "state",
    "evidence",
)
VERDICT_SLOWDOWN = gauge(
    "straggler.verdict.slowdown",
    "{ratio}",
    "own time / time of the peers, of a confirmed or flapping verdict",
    *_OF_VERDICT,
)
VERDICT_LOSS = gauge(
    "straggler.verdict.gpu_time_lost_rate",
    "{gpu}",
    "time of all ranks that the run waits for the subject, per time: so many ranks (GPUs) are lost",
    *_OF_VERDICT,
)
VERDICT_PAGES = gauge(
    "straggler.verdict.pages", "{flag}", "1 if the verdict notifies people", *_OF_VERDICT
)
VERDICT_SINCE = gauge(
    "straggler.verdict.since.timestamp",
    "s",
    "since when the subject is slow, by the senders' clock, whole seconds, of a confirmed or "
    "flapping verdict; absent if unknown",
    *_OF_VERDICT,
)
VERDICT_SILENCED = gauge(
    "straggler.verdict.silenced", "{flag}", "1 if dismissed or muted", *_OF_VERDICT
)
RUN_SLOW = gauge(
    "straggler.run.slow_subjects",
    "{subject}",
    "ranks or hosts that one alert counts, where it is about more than five; `worst` names five of "
    "them, and one that is named stays named while it is slow",
    "alert",
    "severity",
    "cause",
    "worst",
)
RANK_BEST = gauge(
    "straggler.rank.own_best",
    "s",
    "own best median of a rank that StragglerRankDegraded names, in the section in which it is "
    "furthest behind; `text` says it, and when it was",
    "section",
    "text",
)
CAUSED_WAIT = counter(
    "straggler.caused_wait", "s", "what its peers waited for the rank that came last"
)
SUFFERED_WAIT = counter("straggler.suffered_wait", "s", "what the rank waited for others")
SECTION_EXPOSED = gauge(
    "straggler.section.exposed_time",
    "s",
    "time per step that the section adds on the slowest path",
    "section",
    subject=OF_RUN,
)
WORKER_SLOWDOWN = gauge(
    "straggler.worker.slowdown",
    "{ratio}",
    "slowdown of the run if only this cell of data rank and pipeline stage were slow",
    "data_rank",
    "pipeline_stage",
)

# --- from the collector -----------------------------------------------------------------------
LAST_HEARTBEAT = gauge(
    "straggler.last_heartbeat.timestamp", "s", "newest heartbeat, on the collector's clock"
)
LAST_PROGRESS = gauge(
    "straggler.last_progress.timestamp", "s", "newest progress, on the collector's clock"
)
RUN_OLDEST_HEARTBEAT = gauge(
    "straggler.run.oldest_heartbeat.timestamp", "s", "last heartbeat of the rank silent for longest"
)
RUN_OLDEST_PROGRESS = gauge(
    "straggler.run.oldest_progress.timestamp", "s", "last progress of the rank stuck for longest"
)
RUN_STEP = gauge("straggler.run.step", "{step}", "newest step that any rank reported")
RANK_LAST_SCORED = gauge(
    "straggler.rank.last_scored.timestamp", "s", "when the rank last got scores"
)
RANK_STEP = gauge("straggler.rank.step", "{step}", "newest step the rank reported")
RANK_STATE = gauge(
    "straggler.rank.state",
    "{state}",
    "1 for the current state: starting, ok, late, stuck, lost, finished, failed or ended",
    "state",
)
RANK_TIMEOUT = gauge(
    "straggler.rank.timeout", "s", "what the rank may take for what it does before it is stuck"
)
RANK_CULPRIT = gauge(
    "straggler.rank.culprit",
    "{flag}",
    "1 for a rank that a hang waits for; at most 20 of a run",
    "why",
)
RUN_STATE = gauge(
    "straggler.run.state",
    "{state}",
    "1 for the current state: starting, training, stuck, partly_lost, lost, finished, "
    "cancelled, preempted, failed, ended or forgotten; 0 for the others",
    "state",
)
RUN_HUNG = gauge("straggler.run.hung", "{flag}", "1 while the run is hung and unacknowledged")
RUN_HANG_INFO = gauge(
    "straggler.run.hang_info",
    "{info}",
    "why the ranks of a hung run wait, and for whom on which hosts; always 1",
    "why",
    "sentence",
    "culprits",
)
RUN_FAILED = gauge(
    "straggler.run.failed.timestamp",
    "s",
    "since when a run has failed that no launcher restarts",
    "sentence",
)
RUN_RANKS = gauge("straggler.run.ranks", "{rank}", "ranks of the run, by their state", "state")
RUN_SCORING_FAILING = gauge(
    "straggler.run.scoring_failing",
    "{flag}",
    "1 while the collector's evaluation of the run fails; its page says since when, and why",
)
RUN_PAGES = gauge("straggler.run.pages", "{flag}", "1 if alerts about the run may notify people")
RUN_RECORDS_DROPPED = counter(
    "straggler.run.records.dropped", "{record}", "records its ranks lost, by reason", "reason"
)
RUN_INFO = gauge("straggler.run.info", "{info}", "team and attempt; always 1", "team", "attempt")
MAINTENANCE_UNTIL = gauge(
    "straggler.maintenance.until.timestamp",
    "s",
    "end of maintenance",
    "node",
    "reason",
    "by",
    subject=(),
)
RUN_STARTED = gauge("straggler.run.start.timestamp", "s", "first contact of the newest attempt")
RUN_CHECKPOINT = gauge(
    "straggler.run.last_checkpoint.timestamp",
    "s",
    "end of the last checkpoint on any rank, its clock",
)
RUN_CHECKPOINT_SAVE = gauge(
    "straggler.run.last_checkpoint.save_time", "s", "of the last save, its slowest rank"
)
RUN_CHECKPOINT_BLOCKING = gauge(
    "straggler.run.last_checkpoint.blocking_time", "s", "of that, the training stood still"
)
RUN_CHECKPOINT_SIZE = gauge(
    "straggler.run.last_checkpoint.size", "By", "that all ranks wrote in the last save"
)
RUN_OPEN_SECTIONS = gauge(
    "straggler.run.open_sections",
    "{rank}",
    "ranks that have not ended, by open section: at most 20, the others as `<other>`",
    "section",
)
RUN_WORLD_SIZE = gauge("straggler.run.world_size", "{rank}", "ranks expected")
RUN_RANKS_REPORTING = gauge("straggler.run.ranks_reporting", "{rank}", "ranks in the newest window")
RUN_FINISHED = gauge("straggler.run.finished.timestamp", "s", "when the last rank of the run ended")
RUN_COVERAGE = gauge(
    "straggler.run.coverage", "{ratio}", "ranks scored / ranks expected, newest window"
)
RUN_RANKS_UNSCORED = gauge(
    "straggler.run.ranks_unscored",
    "{rank}",
    "ranks that report and have no score, while others of the run have one",
    "ranks",
)
RUN_SLOWDOWN = gauge(
    "straggler.run.slowdown",
    "{ratio}",
    "actual step / step with equal work and slow ranks like their peers",
)
RUN_WASTE = gauge("straggler.run.waste", "{ratio}", "1 - 1 / slowdown of the run")
RUN_M_W = gauge(
    "straggler.run.loss_by_worst_workers",
    "{ratio}",
    "M_W: part of the loss that goes if the worst 3 % of the workers took the mean of all",
)
RUN_M_S = gauge(
    "straggler.run.loss_by_last_stage",
    "{ratio}",
    "M_S: part of the loss that goes if the last pipeline stage took the mean of all; above "
    "1 where the other stages take less, below 0 where it does itself",
)
RUN_GPU_TIME_LOST = counter(
    "straggler.run.gpu_time_lost", "s", "time of all ranks (GPUs) lost to stragglers and hangs"
)
RUN_STEP_TIME = gauge(
    "straggler.run.step_time", "s", "time of a step: median over ranks and newest steps"
)
RUN_SLOWEST_STEP = gauge(
    "straggler.run.slowest_step_time", "s", "step time of the slowest rank: median"
)
RUN_RESOLVABLE = gauge(
    "straggler.run.resolvable_slowdown",
    "{ratio}",
    "smallest slowdown that would be found; absent where waiting is hidden",
)
RUN_IDENTITY_CLASHES = gauge(
    "straggler.run.identity_clashes",
    "{rank}",
    "ranks claimed by two sessions",
    "run_id",
    subject=(),
)

# --- from the collector, of all ranks together -------------------------------------------------
SECTION_WORST = gauge(
    "straggler.section.worst_score",
    "{score}",
    "relative score of the section's 20 lowest ranks; none where ranks wait, save or "
    "evaluate. Never folded",
    "section",
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
which Prometheus keeps for summaries. Those of the scores of sections and of their medians are
always published; each other one stands for ranks whose series were folded by the budget."""
