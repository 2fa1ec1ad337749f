"""A replayed run looks like a live one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.simulate.replay import (
    BEAT_S,
    LARGEST_BODY_BYTES,
    Ending,
    Replay,
    seconds_before,
)
from otel_straggler.simulate.runs import SimulatedRun

from .generated import make

NOW_S = 1_800_000_000.0


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.at_s = NOW_S

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, duration_s: float) -> None:
        assert duration_s > 0
        self.at_s += duration_s


class Sink:
    """Remembers what came when."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.spans: list[tuple[float, object]] = []
        self.beats: list[tuple[float, Heartbeat]] = []

    def post(self, signal: str, body: bytes) -> None:
        assert len(body) <= LARGEST_BODY_BYTES
        if signal == "traces":
            self.spans.append((self.time.at_s, SpanDecoder().decode(body).batch))
        else:
            beats = MetricDecoder().decode(body).heartbeats
            self.beats += [(self.time.at_s, beat) for beat in beats]


def replayed(run: SimulatedRun, speed: float, ending: Ending | None = None) -> Sink:
    time = Time()
    sink = Sink(time)
    count = Replay(sink.post, speed=speed, ending=ending, clock=time).run(run.batches())
    assert count == sum(len(batch) for batch in run.batches())
    assert sum(len(batch) for _, batch in sink.spans) == count
    return sink


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_a_step_is_sent_when_it_has_ended(speed):
    """In real time, or so many times faster."""
    run = make("dp4", steps=30)
    (table,) = run.tables(30)
    begin_ns = int(table.start_ns.min())
    for at_s, batch in replayed(run, speed).spans:
        (step,) = np.unique(batch.step)
        ended_s = (int(table.end_ns[step].max()) - begin_ns) / 1e9
        assert at_s - NOW_S == pytest.approx(ended_s / speed, abs=1e-5)


def test_without_a_speed_limit_nobody_waits():
    """For tests and for filling a collector."""
    sink = replayed(make("dp4", steps=30), 0.0)
    assert {at_s for at_s, _ in sink.spans} == {NOW_S}
    assert Counter(beat.outcome for _, beat in sink.beats) == {None: 4, "ok": 4}


def test_the_first_steps_may_be_sent_at_once():
    """The clock of the others begins with the first step that is not."""
    run = make("dp4", steps=30)
    (table,) = run.tables(30)
    time = Time()
    sink = Sink(time)
    Replay(sink.post, clock=time, quick_until_step=20).run(run.batches())
    sent_s = {int(batch.step[0]): at_s - NOW_S for at_s, batch in sink.spans}
    assert [sent_s[step] for step in range(20)] == [0.0] * 20
    begin_ns = int(table.start_ns[20].min())
    for step in range(20, 30):
        ended_s = (int(table.end_ns[step].max()) - begin_ns) / 1e9
        assert sent_s[step] == pytest.approx(ended_s, abs=1e-5)


def test_how_long_a_run_takes_up_to_a_step():
    """From its first start to the last end before; a shorter run has taken all it takes."""
    run = make("dp4", steps=30)
    (table,) = run.tables(30)
    taken_s = (table.end_ns.max(axis=1) - table.start_ns.min()) / 1e9
    assert seconds_before(run.batches(), 0) == 0.0
    assert seconds_before(run.batches(), 20) == pytest.approx(taken_s[19], abs=1e-6)
    assert seconds_before(run.batches(), 99) == pytest.approx(taken_s[29], abs=1e-6)


def test_all_ranks_give_signs_of_life_every_few_seconds_and_say_how_far_they_are():
    """With node, place and step, as a real client does; at last that they ended well."""
    run = make("tp2,dp4", steps=30)
    sink = replayed(run, 1.0)
    by_rank: dict[int, list[tuple[float, Heartbeat]]] = {}
    for at_s, beat in sink.beats:
        by_rank.setdefault(beat.source.rank, []).append((at_s, beat))
    assert sorted(by_rank) == list(range(8))
    for rank, beats in by_rank.items():
        times = [at_s for at_s, _ in beats]
        assert max(np.diff(times)) <= BEAT_S + 1e-6
        assert [beat.outcome for _, beat in beats] == [None] * (len(beats) - 1) + ["ok"]
        assert beats[-1][1].step == 29
        steps = [beat.step for _, beat in beats if beat.step is not None]
        assert steps == sorted(steps)
        assert beats[0][1].source == run.sources[rank]


def test_a_run_that_hangs_lives_on_without_progress():
    """The one that did not join is in another section than those who wait for it."""
    run = make("dp4", "hang_never_joined@rank2:step20", steps=40)
    sink = replayed(run, 1.0, Ending(hold_s=30.0))
    stopped_s = sink.spans[-1][0]
    after = [beat for at_s, beat in sink.beats if at_s > stopped_s]
    assert Counter(beat.source.rank for beat in after) == dict.fromkeys(range(4), 6)
    assert all(beat.progress_at_s == pytest.approx(stopped_s, abs=1e-3) for beat in after)
    assert {beat.outcome for beat in after} == {None}
    sections = {beat.source.rank: beat.open_section for beat in after}
    assert sections == {0: "gradient_sync", 1: "gradient_sync", 2: "forward", 3: "gradient_sync"}


def test_a_rank_that_crashed_is_silent():
    """The others wait."""
    run = make("dp4", "crash@rank2:step20", steps=40)
    sink = replayed(run, 1.0, Ending(silent=frozenset({2}), hold_s=30.0))
    after = {beat.source.rank for at_s, beat in sink.beats if at_s > sink.spans[-1][0]}
    assert after == {0, 1, 3}


def test_after_a_restart_the_new_sessions_speak():
    """The old ones have ended."""
    run = make("dp4", steps=30, restart_at_step=15)
    sink = replayed(run, 10.0)
    sessions = [beat.source.session_id for _, beat in sink.beats]
    new = {source.session_id for source in run.sources}
    first = sessions.index(run.sources[0].session_id)
    assert set(sessions[first:]) == new
    assert not set(sessions[:first]) & new


def test_many_ranks_share_a_request():
    """A thousand ranks are not a thousand requests a step."""
    run = make("dp512", steps=2, microbatches=1)
    posted: Counter[str] = Counter()
    Replay(lambda signal, _: posted.update([signal]), speed=0.0).run(run.batches())
    assert posted["traces"] <= 10
    assert posted["metrics"] <= 6
