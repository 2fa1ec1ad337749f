"""What the collector knows of ranks and runs: signs of life, states, times."""

from __future__ import annotations

from otel_straggler.semconv.names import Metric

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
)
RUN_STATE = Metric(
    "straggler.run.state",
    "{state}",
    "gauge",
    "1 for the state that the run is in: starting, training, stuck, partly_lost, lost, finished, "
    "cancelled, preempted, failed or forgotten; 0 for the others",
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
)
RUN_RANKS = Metric("straggler.run.ranks", "{rank}", "gauge", "ranks of the run, by their state")
RUN_PAGES = Metric(
    "straggler.run.pages", "{flag}", "gauge", "1 if alerts about the run may call somebody"
)
RUN_RECORDS_DROPPED = Metric(
    "straggler.run.records.dropped",
    "{record}",
    "counter",
    "records that ranks of the run lost while they were heard here, by reason",
)
RUN_INFO = Metric("straggler.run.info", "{info}", "gauge", "team and attempt; always 1")
MAINTENANCE_UNTIL = Metric(
    "straggler.maintenance.until.timestamp", "s", "gauge", "when maintenance of the host ends"
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
    "straggler.run.identity_clashes", "{rank}", "gauge", "ranks claimed by two live sessions"
)
