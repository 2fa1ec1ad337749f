"""The runbook: of each alert what it means, the first three things to do, and how to be quiet.

Markdown. ``alerts/RUNBOOK.md`` puts the headings and the numbers of the catalogue around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RUNBOOKS: Final[Mapping[str, str]] = {
    "StragglerRunHung": """\
The run as a whole shows no progress: its ranks are stuck or lost, or too many of them are, and its
machines are paid for and idle. Where all ranks are lost nobody knows: the job was ended, or the
network between it and the collector is cut and it trains on. Ask the scheduler first. If the
collector that said so is gone, this is the last word on the run.

1. `otel-straggler report RUN`, or the live page at the collector's address, says which ranks the
   others wait for, and why. The alerts on these ranks are inhibited, not absent.
2. Look at the host of the culprit: is the process there (`ps`), stopped, out of memory (`dmesg`),
   its GPU gone (`nvidia-smi`)? If all have joined and none gets on: `otel-straggler hang
   /shared/dumps` on the flight records.
3. Restart the run from its last checkpoint, without the host if it is at fault. With the same run
   id the alert ends as soon as ranks get on.

Quiet: Silence `run_id`; the alert of the next run is another.
""",
    "StragglerRankLost": """\
A rank that took part sends no heartbeats any more and has not said how it ended. Heartbeats come
from a thread of their own, so a busy or blocked training loop is no reason: the process, its host
or the way to the collector is gone.

1. Is the host there (`ping`, the scheduler's view of it)? If several ranks of one host are
   lost, it is the host.
2. Is the process there? `ps`, `dmesg` (out of memory, XID), the job's log; state `T` means
   stopped. `OTEL_STRAGGLER_RING_DIR` keeps what a dead process did last.
3. Cordon the host and restart the run without it; or let the launcher restart the rank.

Quiet: `otel-straggler maintenance add --node NODE --for 4h --reason WHY` if the host is being
worked on; else silence `run_id` and `rank`.
""",
    "StragglerRankStuck": """\
The other ranks wait in something, most often a collective, that this rank has not reached (it is
behind them and does not get on) or never will (it has ended).

1. What does it do? `py-spy dump --pid PID` on its host; `straggler_rank_step` and the report's
   `liveness` say how far it came.
2. `otel-straggler hang /shared/dumps` says from PyTorch's flight records which ranks did not join
   which collective.
3. A rank that took another branch (data ran out, an exception was caught, a condition on its own
   rank) is a mistake in the training code; a blocked read is storage. Restart the run once that
   is known.

Quiet: Silence `run_id` and `rank`.
""",
    "StragglerRanksMissing": """\
The run says how many ranks it has, and not all of them have ever reached this collector. They may
not have started, not be instrumented, or send elsewhere.

1. `otel-straggler top` shows who reports; the others are missing.
2. `otel-straggler doctor` in the environment of a missing rank says what stands between it and
   the collector.
3. Compare the endpoint, run id and group that the ranks were given: ranks under another run id
   are missing here and extra there.

Quiet: Silence `run_id` with this alert's name where some ranks are left out on purpose.
""",
    "StragglerRunForgotten": """\
Nothing was heard of the run for so long that it is no longer watched. That is no all-clear:
nobody knows how it ended.

1. Ask the scheduler whether the job still runs; cancel it if nobody works on it.
2. Look for earlier alerts with the same `run_id`: a StragglerRunHung that nobody acted on has
   become this.
3. If the run is well and only its telemetry is not: `otel-straggler doctor` in its environment.

Quiet: It ends by itself; nobody is told when it does.
""",
    "StragglerRankStraggling": """\
A rank is slower than its peers in work of its own, confirmed over many steps, and the whole job
waits for it. `critical`: by 10 % or more and dear enough to call somebody; `warning`: less than
that.

1. `otel-straggler verdict explain RANK` says what the verdict rests on: the numbers of the rank
   and of its peers, since when, and whether it was ever faster.
2. By the cause: slow GPU: clocks, temperature, XID errors of the GPU (`nvidia-smi -q`). Slow
   host: CPU, disks, data loading on the host. Others: the description has the next step.
3. Cordon the host and restart the run from its last checkpoint if the loss is worth it; the
   description says how many ranks' time that is.

Quiet: `otel-straggler verdict mute RANK --for 8h --reason WHY` for a time, `otel-straggler
verdict dismiss RANK --reason WHY` if it is wrong.
""",
    "StragglerHostSlow": """\
The ranks of one host are slow together, so what they share is at fault: CPU, memory, disks,
power, cooling, the network card. Alerts on its single ranks are inhibited.

1. `otel-straggler verdict explain NODE` says what the verdict rests on.
2. On the host: load and memory of other processes (`top`), power and temperature limits
   (`nvidia-smi -q -d PERFORMANCE`), errors (`dmesg`).
3. Cordon the host and restart the run from its last checkpoint if the loss is worth it.

Quiet: `otel-straggler verdict mute NODE --for 8h --reason WHY`, or `otel-straggler maintenance
add --node NODE --for 4h --reason WHY`.
""",
    "StragglerScoreLow": """\
The median time of a section on this rank is long against the best rank of its role. That alone
calls nobody: a low score is a number, a verdict (StragglerRankStraggling) says that it costs
something.

1. `otel-straggler top` shows the scores of all ranks: one rank, one node, or all but one?
2. If it is one rank for hours: `otel-straggler verdict explain RANK` says why there is a verdict
   or none.
3. With thousands of ranks the best one is lucky: lower `relative_threshold`, or use the recording
   rules with the reference `p5`.

Quiet: Silence `run_id` with this alert's name, or render the rules with another
`relative_threshold`.
""",
    "StragglerRankDegraded": """\
The rank has become slow against its own past in this section. If all ranks have, it is what they
share (storage, fabric, the data), or the work has grown.

1. `otel-straggler top`: is it one rank, one host, or all of them?
2. One rank or host: clocks, temperature and power limits of its GPU (`nvidia-smi -q -d
   PERFORMANCE`), other processes on the host.
3. All ranks: the last change of data, batch size or sequence length; storage; fabric.

Quiet: Silence `run_id` with this alert's name, or render the rules with another
`individual_threshold`.
""",
    "StragglerGpuSlow": """\
The same kernels take longer on this GPU than on that of the best rank. Kernel times know nothing
of waiting, so this is the GPU: clocks, heat, power, memory errors; or another process on it.

1. `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER` there and on a peer: is it throttled?
2. `dmesg | grep -i xid` and `nvidia-smi -q -d ECC,ROW_REMAPPER`: is it ill?
3. `nvidia-smi` : does another process use it? Else cordon the host and have the GPU tested.

Quiet: Silence `run_id` with this alert's name, or render the rules with another `gpu_threshold`.
""",
    "StragglerRunSlow": """\
Time is lost to inequality, but to nobody in particular: uneven stages, sequences of unequal
length, experts, or different ranks in turn.

1. `/v1/report` (`verdicts`) has verdicts on roles and on the run: stage imbalance,
   sequence-length imbalance, expert imbalance.
2. `straggler_section_exposed_time_seconds` says in which sections the time goes,
   `straggler_caused_wait_seconds_total` who makes others wait.
3. Nothing is broken: balance stages, pack sequences, or live with it and raise
   `run_slowdown_threshold`.

Quiet: Silence `run_id` with this alert's name, or render the rules with another
`run_slowdown_threshold`.
""",
    "StragglerNoData": """\
The run is alive and instrumented, but its sections do not become scores: no spans arrive, or
windows do not close, or a window is longer than `no_data_seconds`.

1. `otel-straggler doctor` in the environment of a rank says whether sections are recorded and
   reach the collector.
2. `straggler_collector_spans_total` by `fate` and `reason` says what becomes of spans;
   `straggler_records_dropped_total` what ranks lose.
3. Are five steps, the least that are scored together, longer than 15 minutes? Then raise
   `no_data_seconds`.

Quiet: Silence `run_id` with this alert's name.
""",
    "StragglerIdentityCollision": """\
Two processes that live at the same time say that they are the same rank of the same run: two jobs
with one run id, or a process of an earlier attempt that was not ended.

1. `otel-straggler doctor` names the clash from within a rank.
2. `/v1/report` has the two sessions; look for the older process and end it.
3. Two jobs: give each a run id of its own (`OTEL_STRAGGLER_RUN_ID`).

Quiet: Silence `run_id` with this alert's name.
""",
    "StragglerSpansDropped": """\
Telemetry was dropped rather than training held up. Every record that is lost is counted, by its
reason.

1. The page of names on the wire lists what each reason means (`straggler.records.dropped`).
2. `queue_full`, `rejected`: was the collector away, full or restarted?
   `straggler_collector_requests_total` by `answer`.
3. `ring_full`, `inbox_full`: too many sections for the exporter; leave out the shortest ones.

Quiet: It ends 5 minutes after the last loss.
""",
    "StragglerRunSilent": """\
The last heartbeat of the run is old and its collector is gone or has let it go. Whether the run
lives cannot be said from here. It is told for an hour.

1. Is its collector down? StragglerCollectorDown says so; start it again.
2. Ask the scheduler whether the job runs. If it does, `otel-straggler doctor` in its environment
   says where its telemetry goes.
3. If several collectors share the load: does the address that the run sends to lead to one that
   is scraped?

Quiet: It ends after an hour, or when a collector knows the run.
""",
    "StragglerCollectorDown": """\
The collector's metrics are gone: the process has ended, its host is cut off, or Prometheus does
not reach it. Training is not affected; ranks keep a queue and send it when a collector is there
again.

1. Is it running? Its log says why it ended; `/healthz` whether it answers. If Prometheus (Status,
   Targets) says 403: `metrics.allowed_hosts` must have the name under which it asks.
2. Start it again with the same `metrics.collector_id` (and history), so that it goes on as the
   same.
3. If it was taken down on purpose, the alert ends after an hour.

Quiet: Silence `collector`.
""",
    "StragglerWatchdog": """\
It fires always. Send it to a dead man's switch, which calls somebody when it stays away.

1. If it stays away: is the collector up, is it scraped, are the rules loaded (Prometheus, Status,
   Rules)?
2. Does Prometheus reach the Alertmanager (`prometheus_notifications_errors_total`)?
3. `otel-straggler alerts test` sends an alert along the same way and says where it arrived.

Quiet: Never silence it; route it to nobody instead.
""",
}
