"""What survives a restart of whoever scores: own-history references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.scores import references as references_module
from otel_straggler.detect.scores.references import References
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.errors import InputError
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source

HOUR_NS = 3_600_000_000_000
NOTHING = np.array([[np.nan]])
ENOUGH = np.array([[True]])


def filled() -> References:
    references = References(half_life_s=3600.0)
    for i in range(20):
        subject, name = ("job", "", f"node{i}", i), f"f{i % 3}"
        references.update([subject], [name], np.array([[(i + 1.0) / 4.0]]), ENOUGH, 0)
    return references


def test_references_go_on_after_a_restart() -> None:
    """Every best, and the time at which it was met: it fades as it would have."""
    restored = References(half_life_s=3600.0)
    restored.restore(filled().state())
    for i in range(20):
        subject, name = ("job", "", f"node{i}", i), f"f{i % 3}"
        result = restored.update([subject], [name], NOTHING, ENOUGH, HOUR_NS)
        assert result.item() == 2 * (i + 1) / 4.0


def test_restored_references_grow() -> None:
    """New devices and sections come after the restart."""
    restored = References(half_life_s=1e300)
    restored.restore(filled().state())
    restored.update([("new",)], ["other"], np.array([[7.0]]), ENOUGH, 0)
    assert restored.update([("new",)], ["other"], NOTHING, ENOUGH, 0).item() == 7.0
    old = restored.update([("job", "", "node4", 4)], ["f1"], NOTHING, ENOUGH, 0)
    assert old.item() == 5.0 / 4.0


def test_a_state_does_not_change_with_what_it_was_taken_from() -> None:
    """It is written by another thread, later."""
    references = filled()
    state = references.state()
    references.update([("job", "", "node0", 0)], ["f0"], np.array([[0.125]]), ENOUGH, 1)
    assert state["best_s"][0, 0] == 0.25


def test_nothing_known_is_a_state_too() -> None:
    """Of a collector that has not closed a window."""
    restored = References(half_life_s=1.0)
    restored.restore(References(half_life_s=1.0).state())
    assert restored.update([("a",)], ["f"], np.array([[1.0]]), ENOUGH, 0).item() == 1.0


def test_devices_met_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes come and go for months; a state has room for so many."""
    monkeypatch.setattr(references_module, "MAX_SUBJECTS", 2)
    references = References(half_life_s=1e300)
    for i, at_ns in enumerate([5, 9, 7]):
        references.update([(f"gpu{i}",)], ["f"], np.array([[1.0]]), ENOUGH, at_ns)
    assert references.state()["subjects"] == [["gpu1", "gpu2"]]


@pytest.mark.parametrize(
    "change",
    [
        {"subjects": [["a"]]},
        {"subjects": [["a", "a"], ["b", "b"]]},
        {"subjects": 3},
        {"names": ["f", "f"]},
        {"names": ["f", 2]},
        {"names": None},
        {"best_s": np.ones((2, 2), np.float32)},
        {"best_s": np.ones((2, 1))},
        {"best_s": -np.ones((2, 2))},
        {"best_s": [[1.0, 1.0], [1.0, 1.0]]},
        {"met_at_ns": np.ones((2, 2))},
    ],
)
def test_what_is_no_state_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    """A wrong reference would be worse than none."""
    references = References(half_life_s=1.0)
    references.update(
        [("a", "x"), ("b", "y")], ["f", "g"], np.ones((2, 2)), np.ones((2, 2), bool), 0
    )
    before = references.state()
    with pytest.raises(InputError, match="references"):
        references.restore({**before, **change})
    with pytest.raises(InputError):
        references.restore({})
    assert references.state()["subjects"] == before["subjects"]


def rows(device_of_rank: list[str], seconds: dict[str, float], first_step: int) -> Any:
    """Ten steps; a device's time goes with the device, whatever its rank is called."""
    builder = BatchBuilder()
    for step in range(first_step, first_step + 10):
        for rank, device in enumerate(device_of_rank):
            source = Source(
                run_id="r",
                rank=rank,
                node="n",
                device=device,
                job="j",
                world_size=len(device_of_rank),
            )
            start_ns = step * 10**9
            builder.add(
                source, Section("f"), step=step, start_ns=start_ns, duration_s=seconds[device]
            )
    return builder.build()


def test_own_history_goes_with_the_device_over_a_restart_with_other_rank_numbers() -> None:
    """A scorer and a job that start again, with the ranks the other way round: the device that was
    twice as fast before scores one half, and the others one."""
    devices = ["gpu-a", "gpu-b", "gpu-c"]
    before = Scorer(ScoreSettings(window_steps=10))
    before.observe(rows(devices, {"gpu-a": 1.0, "gpu-b": 2.0, "gpu-c": 3.0}, 0), 0)
    before.close_all()
    after = Scorer(ScoreSettings(window_steps=10))
    after.restore(before.state())
    now = rows(devices[::-1], {"gpu-a": 2.0, "gpu-b": 2.0, "gpu-c": 3.0}, 10)
    after.observe(now, 0)
    (window,) = after.close_all()
    scores = {
        s.device: x for s, x in zip(window.sources, window.section_individual[:, 0], strict=True)
    }
    assert scores["gpu-a"] == pytest.approx(0.5, rel=1e-3)
    assert scores["gpu-b"] == scores["gpu-c"] == pytest.approx(1.0, rel=1e-3)
