"""What happens to real trainings, and what the webhook of an Alertmanager got about each.

A story runs in a thread of its own beside the others: they share the servers and differ in the run.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.alert_delay.jobs import Job
from benchmarks.alert_delay.stage import Notification, Stage
from otel_straggler.collector.alerting.alert_json import seconds_of_rfc3339
from otel_straggler.demo.processes import Collector

QUIET_S = 6.0
"""After a page: what belongs to it has come too (several waits of its group)."""
SILENCE_S = 12.0
"""After an end: had it been taken for a hang, the page would have come (they take 6 to 9 s)."""
RESTARTED = {"TORCHELASTIC_MAX_RESTARTS": "1"}
NODES = ("node-0", "node-0", "node-1", "node-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a story.

    Attributes:
        pages: delivered to the pager about its run, in order.
        delay_s: from the fault to the first page; NaN if there was none.
        critical: alerts that Prometheus has ever had firing about the run and that page.
        liveness: what the collector said of the run last.
        more: what only this story tells.
    """

    pages: list[Notification]
    delay_s: float = float("nan")
    critical: list[str] = field(default_factory=list)
    liveness: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def firing(self) -> list[Notification]:
        """Pages that call somebody; the others say that it is over."""
        return [page for page in self.pages if page.status == "firing"]

    @property
    def resolved(self) -> list[Notification]:
        return [page for page in self.pages if page.status == "resolved"]

    @property
    def alerts(self) -> list[str]:
        """Names of all that somebody was called for."""
        return sorted({name for page in self.firing for name in page.names()})

    @property
    def text(self) -> str:
        """All that was said while it fired."""
        return " ".join(page.text for page in self.firing).lower()


Story = Callable[[Stage], Outcome]

# --- somebody must be called ----------------------------------------------------------------------


def slow_rank(stage: Stage) -> Outcome:
    """Rank 3 needs twice as long in forward."""
    job = stage.trained("slow")
    result = paged(stage, job, "StragglerRankStraggling", lambda: slow(job, 3))
    job.order("finish")
    return result


def stopped_rank(stage: Stage) -> Outcome:
    """SIGSTOP of rank 1, as a frozen host; later it goes on."""
    job = stage.trained("stopped")
    result = paged(stage, job, "StragglerRunHung", lambda: job.signal(signal.SIGSTOP, [1]))
    job.signal(signal.SIGCONT, [1])
    stage.wait_for(job.run_id, "StragglerRunHung", status="resolved")
    stage.wait_until(
        lambda: stage.reported(job.run_id)[-1].status == "resolved",
        lambda: f"not all over: {stage.reported(job.run_id)}",
    )
    return finished(stage, job, result)


def deadlocked_ranks(stage: Stage) -> Outcome:
    """Rank 2 runs a collective that the others do not, and so does not join theirs."""
    job = stage.trained("deadlocked")
    result = paged(stage, job, "StragglerRunHung", lambda: job.order("stuck", rank=2))
    job.kill()
    return result


def killed_rank(stage: Stage) -> Outcome:
    """SIGKILL of rank 2, as the kernel does when memory runs out."""
    job = stage.trained("killed")
    result = paged(stage, job, "StragglerRunHung", lambda: job.signal(signal.SIGKILL, [2]))
    job.kill()
    return result


def half_lost(stage: Stage) -> Outcome:
    """A node goes away, and with it two of four ranks."""
    job = stage.trained("half")
    result = paged(stage, job, "StragglerRunHung", lambda: job.signal(signal.SIGKILL, [2, 3]))
    held_back = stage.query(
        'max by (rank) (max_over_time(ALERTS{run_id="half",alertname="StragglerRankLost",'
        'alertstate="firing"}[5m]))'
    )
    job.kill()
    result.more["held_back"] = sorted(int(series["metric"]["rank"]) for series in held_back)
    return result


def refused_notifications(stage: Stage) -> Outcome:
    """The webhook fails three times."""
    job = stage.trained("refused")
    stage.refuse(job.run_id, 3)
    result = paged(stage, job, "StragglerRunHung", lambda: job.signal(signal.SIGSTOP, [0, 1, 2, 3]))
    job.kill()
    result.more["refused"] = len(stage.refused(job.run_id))
    return result


def slow_then_finished(stage: Stage) -> Outcome:
    """Rank 3 is slow, somebody is called for it, and the run trains to its end."""
    return slow_then(stage, "slow-finished", lambda job: job.order("finish"))


def slow_then_failed(stage: Stage) -> Outcome:
    """The same, and a mistake in the program ends it."""
    return slow_then(stage, "slow-failed", fail)


def slow_then_killed(stage: Stage) -> Outcome:
    """The same, and all is killed: nobody says how it ended, and it counts as lost."""
    return slow_then(stage, "slow-killed", lambda job: job.kill())


def traceback(stage: Stage) -> Outcome:
    """A mistake in the program of rank 1; the launcher then ends the others, and no more."""
    job = stage.trained("traceback")
    result = paged(stage, job, "StragglerRunFailed", lambda: fail(job))
    result.more["exit_codes"] = job.wait()
    return result


def given_up(stage: Stage) -> Outcome:
    """The same in the second attempt of torchrun --max-restarts=1."""
    job = stage.trained("given-up", attempt=1, environment=RESTARTED)
    return paged(stage, job, "StragglerRunFailed", lambda: fail(job))


# --- nobody must be called ------------------------------------------------------------------------


def clean_finish(stage: Stage) -> Outcome:
    """It trains to its end."""
    return ended(stage, "clean", lambda job: job.order("finish"))


def interrupted(stage: Stage) -> Outcome:
    """Ctrl-C: SIGINT to all."""
    return ended(stage, "interrupted", lambda job: job.signal(signal.SIGINT))


def terminated(stage: Stage) -> Outcome:
    """A scheduler's SIGTERM to all."""
    return ended(stage, "terminated", lambda job: job.signal(signal.SIGTERM))


def long_checkpoint(stage: Stage) -> Outcome:
    """40 s where the least timeout is 4 s: as 300 s are to 30 s."""
    job = stage.trained("checkpoint")
    job.order("checkpoint", value=40.0)
    stage.wait_for_step(job, 100)
    return finished(stage, job, Outcome(pages=[]))


def restarted(stage: Stage) -> Outcome:
    """A rank fails, the launcher ends the others and starts all again."""
    return again(stage, "restarted", fail)


def requeued(stage: Stage) -> Outcome:
    """The scheduler ends the job and later starts it with the same run id; nobody counts."""
    return again(stage, "requeued", lambda job: job.signal(signal.SIGTERM), attempt=0)


def moved(stage: Stage) -> Outcome:
    """A rank was killed; in the next attempt it is on another node."""
    return again(stage, "moved", lose, nodes=("node-0", "node-0", "node-1", "node-9"))


def renumbered(stage: Stage) -> Outcome:
    """In the next attempt every node has other ranks."""
    return again(stage, "renumbered", fail, nodes=tuple(reversed(NODES)))


def shrunk(stage: Stage) -> Outcome:
    """A rank was killed; the next attempt does without it."""
    return again(stage, "shrunk", lose, nodes=NODES[:3])


# --- collectors -----------------------------------------------------------------------------------


def killed_collector(stage: Stage) -> Outcome:
    """It watches a hung run, for which somebody was called, and a healthy one."""
    collector = stage.collector("doomed")
    healthy = stage.start("watched-by-doomed", collector)
    job = stage.trained("hung-before", collector)
    result = paged(stage, job, "StragglerRunHung", lambda: job.signal(signal.SIGSTOP))
    pages_before = stage.reported(job.run_id)
    killed_at_s = time.time()
    collector.kill()
    down = wait_for_down(stage, "doomed")
    time.sleep(SILENCE_S)
    pages = stage.reported(job.run_id)
    for each in (job, healthy):
        each.kill()
    more = {
        "down_delay_s": down.at_s - killed_at_s,
        "down": down,
        "after": pages[len(pages_before) :],
        "of_healthy": stage.reported(healthy.run_id),
    }
    return Outcome(pages=pages, delay_s=result.delay_s, critical=result.critical, more=more)


def other_collector(stage: Stage) -> Outcome:
    """One collector is killed; then a run of the other hangs."""
    collector = stage.collector("first-to-go")
    job = stage.trained("hung-after")
    stage.start("watched-by-first", collector)
    started = 'straggler_collector_start_timestamp_seconds{collector="first-to-go"}'
    stage.wait_until(lambda: bool(stage.query(started)), lambda: "it was never scraped")
    collector.kill()
    wait_for_down(stage, "first-to-go")
    result = paged(stage, job, "StragglerRunHung", lambda: job.signal(signal.SIGSTOP))
    job.kill()
    return result


def observed(stage: Stage) -> Outcome:
    """A collector that only observes: all is computed and labelled, and nobody is called."""
    collector = stage.collector("observer", alerts={"mode": "observe"})
    job = stage.trained("observed", collector)
    return shown_only(stage, job, collector)


def requested_not_to_page(stage: Stage) -> Outcome:
    """A run that says of itself that nobody shall be called for it."""
    job = stage.trained("private", attributes={"training.run.page": "false"})
    return shown_only(stage, job)


# --- what stories are made of ---------------------------------------------------------------------


def paged(stage: Stage, job: Job, alert: str, fault: Callable[[], None]) -> Outcome:
    """After a fault, the page that has ``alert``, and what else comes within a while."""
    at_s = time.time()
    fault()
    stage.wait_for(job.run_id, alert)
    time.sleep(QUIET_S)
    pages = stage.reported(job.run_id)
    return Outcome(
        pages=pages,
        delay_s=pages[0].at_s - at_s,
        critical=stage.ever_fired(job.run_id),
        liveness=stage.liveness(job.run_id),
    )


def slow_then(stage: Stage, run_id: str, end: Callable[[Job], None]) -> Outcome:
    """A rank is slow until the run ends; and what began to fire after that, but for a hang."""
    job = stage.trained(run_id)
    result = paged(stage, job, "StragglerRankStraggling", lambda: slow(job, 3))
    end(job)
    job.wait()
    firing = f'ALERTS{{run_id="{run_id}",alertstate="firing"}}'
    slow_ones = firing.replace("{", '{alertname="StragglerRankStraggling",')
    stage.wait_until(lambda: not stage.query(slow_ones), lambda: f"{run_id}: {slow_ones} stays")
    over_at_s = time.time()
    time.sleep(SILENCE_S)
    told = [*stage.reported(run_id), *stage.reported(run_id, "chat")]
    late = {
        alert["labels"]["alertname"]
        for one in told
        for alert in one.alerts
        if seconds_of_rfc3339(alert["startsAt"]) > over_at_s
    }
    still = {series["metric"]["alertname"] for series in stage.query(firing)}
    result.more.update(late=late, firing=still)
    return result


def ended(stage: Stage, run_id: str, end: Callable[[Job], None]) -> Outcome:
    """A run ends, and nothing is heard for a while."""
    job = stage.trained(run_id)
    end(job)
    exit_codes = job.wait()
    time.sleep(SILENCE_S)
    return silence(stage, run_id, exit_codes=exit_codes)


def again(stage: Stage, run_id: str, end: Callable[[Job], None], **change: Any) -> Outcome:
    """A run ends, and begins again as the change says."""
    first = stage.trained(run_id, nodes=NODES, environment=RESTARTED)
    end(first)
    first.wait()
    second = stage.start(run_id, **{"attempt": 1, "first_step": 40, "nodes": NODES, **change})
    stage.wait_for_step(second, 80)
    time.sleep(SILENCE_S)
    result = silence(stage, run_id)
    second.order("finish")
    second.wait()
    return result


def finished(stage: Stage, job: Job, result: Outcome) -> Outcome:
    """The run goes on to its end; all that was told until then."""
    job.order("finish")
    exit_codes = job.wait()
    more = {**result.more, "exit_codes": exit_codes}
    return Outcome(
        pages=stage.reported(job.run_id),
        delay_s=result.delay_s,
        critical=stage.ever_fired(job.run_id),
        liveness=result.liveness,
        more=more,
    )


def shown_only(stage: Stage, job: Job, collector: Collector | None = None) -> Outcome:
    """A hang that is shown to nobody but those who look."""
    job.signal(signal.SIGSTOP)
    shown = stage.wait_for(job.run_id, "StragglerRunHung", "nobody")
    time.sleep(QUIET_S)
    job.kill()
    return Outcome(
        pages=stage.reported(job.run_id),
        liveness=stage.liveness(job.run_id, collector),
        more={"shown": shown},
    )


def silence(stage: Stage, run_id: str, **more: Any) -> Outcome:
    """What was told of a run of which nothing should have been."""
    return Outcome(
        pages=stage.reported(run_id),
        critical=stage.ever_fired(run_id),
        liveness=stage.liveness(run_id),
        more=more,
    )


def wait_for_down(stage: Stage, collector: str) -> Notification:
    """The notification that this collector is down."""

    def of_it() -> list[Notification]:
        reported = [n for n in stage.reported("", "chat") if "StragglerCollectorDown" in n.names()]
        return [
            n for n in reported if collector in {a["labels"].get("collector") for a in n.alerts}
        ]

    stage.wait_until(lambda: bool(of_it()), lambda: f"nobody says that {collector} is down")
    return of_it()[0]


def slow(job: Job, rank: int) -> None:
    job.order("slow", rank=rank, value=0.05)


def fail(job: Job) -> None:
    """Rank 1 raises; as torchrun does, the others are told to end."""
    job.order("fail", rank=1)
    job.wait_for_one()
    job.signal(signal.SIGTERM)


def lose(job: Job) -> None:
    """The last rank is killed; as torchrun does, the others are told to end."""
    job.signal(signal.SIGKILL, [job.ranks[-1]])
    job.wait_for_one()
    job.signal(signal.SIGTERM)
