"""What happens to runs, and which alerts should tell of it, from when until when."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.alert_delay import servers
from benchmarks.alert_delay.jobs import Job
from benchmarks.rehearsal.scene import WAYS, Scene
from benchmarks.rehearsal.told import Due, Played

SILENCE_S: Final = 12.0
"""After an end: had it been taken for a hang, the message would have come (they take 6 to 9 s)."""
HUNG, STRAGGLING = "StragglerRunHung", "StragglerRankStraggling"
FAILED, DOWN = "StragglerRunFailed", "StragglerCollectorDown"
LOST: Final = ("StragglerRankLost", "StragglerRanksMissing", "StragglerRunSilent")
"""What may be told besides of ranks that are killed, and is held back from people by a hang."""
WHILE_SLOW: Final = ("StragglerScoreLow", "StragglerRankDegraded", "StragglerRunSlow")
"""What may be told besides while a rank is slow, as a warning."""


Scenario = Callable[[Scene, str], Played]


def _slow(job: Job, rank: int = 3, seconds: float = 0.05) -> None:
    job.order("slow", rank=rank, value=seconds)


def _told_while(
    scene: Scene,
    job: Job,
    alert: str,
    begin: Callable[[], object],
    end: Callable[[], object],
    allowed: tuple[str, ...],
) -> Played:
    """A cause begins, is told of by both ways, and ends."""
    from_s = time.time()
    begin()
    scene.wait_for(job.run_id, alert)
    time.sleep(3 * servers.GROUP_INTERVAL_S)
    until_s = time.time()
    end()
    scene.wait_for(job.run_id, alert, over=True)
    due = [Due(alert=alert, run_id=job.run_id, from_s=from_s, until_s=until_s)]
    return Played(runs=(job.run_id,), due=due, allowed=allowed)


def _nothing_told_after(scene: Scene, run_id: str, end: Callable[[Job], object]) -> Played:
    job = scene.trained(run_id)
    end(job)
    job.wait()
    time.sleep(SILENCE_S)
    return Played(runs=(run_id,))


def _killed(job: Job) -> None:
    job.kill()
    job.wait()


# --- a cause that is told -------------------------------------------------------------------------


def slow_rank_finishes(scene: Scene, run_id: str) -> Played:
    """Rank 3 is slow until its run has trained to its end."""
    job = scene.trained(run_id)
    end = lambda: job.order("finish")  # noqa: E731
    result = _told_while(scene, job, STRAGGLING, lambda: _slow(job), end, WHILE_SLOW)
    job.wait()
    return result


def slow_rank_recovers(scene: Scene, run_id: str) -> Played:
    """Rank 3 is slow for a while."""
    job = scene.trained(run_id)
    end = lambda: _slow(job, seconds=0.0)  # noqa: E731
    result = _told_while(scene, job, STRAGGLING, lambda: _slow(job), end, WHILE_SLOW)
    job.order("finish")
    job.wait()
    return result


def slow_rank_fails(scene: Scene, run_id: str) -> Played:
    """Rank 3 is slow, then rank 1 raises: the one is over, the other begins."""
    job = scene.trained(run_id)
    failed_s = 0.0

    def end() -> None:
        nonlocal failed_s
        failed_s = time.time()
        _fail(job)

    result = _told_while(scene, job, STRAGGLING, lambda: _slow(job), end, WHILE_SLOW)
    scene.wait_for(run_id, FAILED)
    scene.wait_for(run_id, FAILED, over=True)
    result.due.append(Due(alert=FAILED, run_id=run_id, from_s=failed_s, until_s=failed_s + 15.0))
    return result


def stopped_rank_goes_on(scene: Scene, run_id: str) -> Played:
    """SIGSTOP of rank 1, as a frozen host; later it goes on."""
    job = scene.trained(run_id)
    begin = lambda: job.signal(signal.SIGSTOP, [1])  # noqa: E731
    end = lambda: job.signal(signal.SIGCONT, [1])  # noqa: E731
    result = _told_while(scene, job, HUNG, begin, end, LOST)
    job.order("finish")
    job.wait()
    return result


def stopped_ranks_killed(scene: Scene, run_id: str) -> Played:
    """All ranks are frozen; then the job is started again under the same name."""
    return _hang_until_restarted(scene, run_id, lambda job: job.signal(signal.SIGSTOP))


def deadlocked_ranks(scene: Scene, run_id: str) -> Played:
    """Rank 2 does not join a collective."""
    return _hang_until_restarted(scene, run_id, lambda job: job.order("stuck", rank=2))


def killed_rank(scene: Scene, run_id: str) -> Played:
    """SIGKILL of rank 2; the others wait for it."""
    return _hang_until_restarted(scene, run_id, lambda job: job.signal(signal.SIGKILL, [2]))


def half_lost(scene: Scene, run_id: str) -> Played:
    """A node goes away, and with it two of four ranks."""
    return _hang_until_restarted(scene, run_id, lambda job: job.signal(signal.SIGKILL, [2, 3]))


def _hang_until_restarted(scene: Scene, run_id: str, begin: Callable[[Job], object]) -> Played:
    job = scene.trained(run_id)

    def end() -> None:
        _killed(job)
        again.append(scene.start(run_id, attempt=1, first_step=40))

    again: list[Job] = []
    result = _told_while(scene, job, HUNG, lambda: begin(job), end, LOST)
    again[0].order("finish")
    again[0].wait()
    return result


def failed(scene: Scene, run_id: str) -> Played:
    """Rank 1 raises, and no launcher restarts it."""
    job = scene.trained(run_id)
    from_s = time.time()
    _fail(job)
    scene.wait_for(run_id, FAILED)
    scene.wait_for(run_id, FAILED, over=True)
    due = [Due(alert=FAILED, run_id=run_id, from_s=from_s, until_s=from_s + 15.0)]
    return Played(runs=(run_id,), due=due)


def _fail(job: Job) -> None:
    job.order("fail", rank=1)
    job.wait_for_one()
    job.signal(signal.SIGTERM)
    job.wait()


def webhook_fails(scene: Scene, run_id: str) -> Played:
    """Both webhooks answer 500 for some seconds; what could not be told is told later."""
    job = scene.trained(run_id)
    scene.fail_notifications(run_id, fail=True)
    from_s = time.time()
    job.signal(signal.SIGSTOP, [1])
    time.sleep(15.0)
    scene.fail_notifications(run_id, fail=False)
    end = lambda: job.signal(signal.SIGCONT, [1])  # noqa: E731
    result = _told_while(scene, job, HUNG, lambda: None, end, LOST)
    job.order("finish")
    job.wait()
    until_s = result.due[0].until_s
    result.due = [Due(alert=HUNG, run_id=run_id, from_s=from_s, until_s=until_s)]
    return result


def muted(scene: Scene, run_id: str) -> Played:
    """Somebody mutes the verdict that was told: the message that it is over comes at once."""
    job = scene.trained(run_id)

    def mute() -> None:
        shard = scene.shard_of(run_id)
        run = scene.get(shard, f"/v1/report?run={run_id}")["runs"][run_id]
        subject = next(v["subject_id"] for v in reversed(run["verdicts"]) if v["rank"] == 3)
        decision = {"action": "mute", "run_id": run_id, "subject_id": subject, "seconds": 3600}
        scene.operate(shard, "/v1/decisions", {**decision, "reason": "known", "by": "alice"})

    result = _told_while(scene, job, STRAGGLING, lambda: _slow(job), mute, WHILE_SLOW)
    job.order("finish")
    job.wait()
    return result


# --- nothing is told ------------------------------------------------------------------------------


def clean_finish(scene: Scene, run_id: str) -> Played:
    """It trains to its end."""
    return _nothing_told_after(scene, run_id, lambda job: job.order("finish"))


def terminated(scene: Scene, run_id: str) -> Played:
    """A scheduler's SIGTERM to all."""
    return _nothing_told_after(scene, run_id, lambda job: job.signal(signal.SIGTERM))


def interrupted(scene: Scene, run_id: str) -> Played:
    """Ctrl-C: SIGINT to all."""
    return _nothing_told_after(scene, run_id, lambda job: job.signal(signal.SIGINT))


def long_checkpoint(scene: Scene, run_id: str) -> Played:
    """20 s, where the shortest timeout is 4 s."""
    job = scene.trained(run_id)
    job.order("checkpoint", value=20.0)
    scene.wait_for_step(job, 100)
    job.order("finish")
    job.wait()
    return Played(runs=(run_id,))


def restarted(scene: Scene, run_id: str) -> Played:
    """A rank raises, the launcher ends the others and starts all again."""
    restarts = {"TORCHELASTIC_MAX_RESTARTS": "1"}
    first = scene.trained(run_id, environment=restarts)
    _fail(first)
    second = scene.start(run_id, attempt=1, first_step=40, environment=restarts)
    scene.wait_for_step(second, 80)
    time.sleep(SILENCE_S)
    second.order("finish")
    second.wait()
    return Played(runs=(run_id,))


def shown_only(scene: Scene, run_id: str) -> Played:
    """A run that says of itself that nobody shall be called for it hangs: it is shown."""
    job = scene.trained(run_id, attributes={"training.run.page": "false"})
    job.signal(signal.SIGSTOP)
    scene.wait_for(run_id, HUNG)
    called = [
        one.path
        for way in WAYS
        for one in scene.hooks[way].received
        if one.payload.get("groupLabels", {}).get("run_id") == run_id and one.path != "/nobody"
    ]
    _killed(job)
    problem = f"somebody was called: {called}" if called else ""
    return Played(runs=(run_id,), allowed=(HUNG, *LOST), problem=problem)


def under_maintenance(scene: Scene, run_id: str) -> Played:
    """The node of the slow rank is under maintenance."""
    node = f"node-of-{run_id}"
    window = {"node": node, "seconds": 600, "reason": "fan", "by": "alice"}
    scene.operate(scene.shard_of(run_id), "/v1/maintenance", window)
    job = scene.trained(run_id, nodes=("node-0", "node-0", node, node))
    _slow(job)
    time.sleep(20.0)
    job.order("finish")
    job.wait()
    return Played(runs=(run_id,), allowed=WHILE_SLOW)


def foreign_run(scene: Scene, run_id: str) -> Played:
    """Ranks with the token of team b that write into a run of team a: refused, and said so."""
    foreign = f"a-{run_id}"
    job = scene.start(foreign, team="b")
    time.sleep(SILENCE_S)
    runs = [each["run_id"] for each in scene.get(scene.shard_of(foreign), "/v1/runs")["runs"]]
    _killed(job)
    return Played(runs=(foreign,), problem="it was taken" if foreign in runs else "")


# --- the servers themselves, one after the other --------------------------------------------------


def killed_gateway(scene: Scene, run_id: str) -> Played:
    """And comes back within seconds. Ranks may be silent for three seconds here, which is less than
    an agent waits until it tries again: a hang may be told, and is over by itself."""
    job = scene.trained(run_id)
    scene.kill_otelcol("gateway")
    time.sleep(1.0)
    scene.start_gateway()
    time.sleep(SILENCE_S)
    job.order("finish")
    job.wait()
    return Played(runs=(run_id,), allowed=(HUNG, *LOST))


def restarted_shard(scene: Scene, run_id: str) -> Played:
    """The shard of a hung run is killed and comes back: one alert, which goes on."""
    job = scene.trained(run_id)
    from_s = time.time()
    job.signal(signal.SIGSTOP)
    scene.wait_for(run_id, HUNG)
    time.sleep(3.0)
    number = scene.shard_of(run_id)
    scene.kill_shard(number)
    time.sleep(1.5)
    scene.restart_shard(number)
    time.sleep(2 * SILENCE_S)
    ended = {way: [t.ended_s for t in scene.told(way, run_id) if t.name == HUNG] for way in WAYS}
    problem = "" if all(each == [None] for each in ended.values()) else f"did not go on: {ended}"
    until_s = time.time()
    _killed(job)
    again = scene.start(run_id, attempt=1, first_step=40)
    scene.wait_for(run_id, HUNG, over=True)
    again.order("finish")
    again.wait()
    due = [Due(alert=HUNG, run_id=run_id, from_s=from_s, until_s=until_s)]
    return Played(runs=(run_id,), due=due, allowed=LOST, problem=problem)


def shard_is_gone(scene: Scene, run_id: str) -> Played:
    """A shard is killed, and stays away for half a minute."""
    number = scene.shard_of(run_id)
    from_s = time.time()
    scene.kill_shard(number)
    time.sleep(30.0)
    until_s = time.time()
    scene.restart_shard(number)
    down = Due(
        alert=DOWN,
        run_id="",
        from_s=from_s,
        until_s=until_s,
        collector=f"shard-{number}",
        by_rules_only=True,
    )
    scene.wait_until(
        lambda: any(t.ended_s is not None for t in scene.told("rules") if down.is_meant(t)),
        f"{DOWN} is not over",
    )
    return Played(runs=(), due=[down])


ALONGSIDE: Final[tuple[tuple[str, Scenario], ...]] = (
    ("a", slow_rank_finishes),
    ("b", slow_rank_recovers),
    ("a", slow_rank_fails),
    ("a", stopped_rank_goes_on),
    ("b", stopped_ranks_killed),
    ("a", deadlocked_ranks),
    ("b", killed_rank),
    ("a", half_lost),
    ("b", failed),
    ("a", webhook_fails),
    ("b", muted),
    ("a", clean_finish),
    ("b", terminated),
    ("a", interrupted),
    ("b", long_checkpoint),
    ("a", restarted),
    ("a", shown_only),
    ("b", under_maintenance),
    ("b", foreign_run),
)
"""By team."""
ALONE: Final[tuple[tuple[str, Scenario], ...]] = (
    ("a", killed_gateway),
    ("b", restarted_shard),
    ("b", shard_is_gone),
)


def run_id_of(team: str, scenario: Any) -> str:
    """The run of a scenario: its team decides by which way its spans come."""
    return f"{team}-{scenario.__name__.replace('_', '-')}"
