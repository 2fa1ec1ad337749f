"""Training does not need its collector."""

from pathlib import Path

import pytest

from otel_straggler.demo.training import Training

from ..waiting import eventually

STEPS = 160
SCRIPT = Path(__file__).parents[2] / "examples" / "demo" / "train.py"
LONGEST_S = 150


@pytest.mark.demo
@pytest.mark.parametrize(
    "protocol", ["http/protobuf", pytest.param("grpc", marks=pytest.mark.nightly)]
)
def test_training_outlives_its_collector_and_is_scored_by_the_next_one(
    start_collector, watch, tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
):
    """Killed in mid-training; on the same ports the very first window of the next one is complete,
    and it begins no later than one window after that collector was there."""
    monkeypatch.setenv("OTEL_STRAGGLER_PROTOCOL", protocol)
    first = start_collector("--window-steps=20")
    script = (str(SCRIPT), "--steps", str(STEPS), "--log-every", "10")
    log = tmp_path / "log"
    training = Training(endpoint_of(first, protocol), "outage", 4, log, script=script)
    try:
        watch(first, "outage").wait_for(lambda window: window["first_step"] == 0)
        first.kill()
        reported = last_step(training)
        eventually(lambda: last_step(training) > reported or training.exit_codes, LONGEST_S)
        assert not training.exit_codes, training.log
        second = start_collector("--window-steps=20", addresses=first.addresses)
        assert second.addresses == first.addresses
        step_when_back = last_step(training)
        again = watch(second, "outage")
        full = again.wait_for(lambda w: w["closed_by"] == "complete" and w["n_steps"] == 20)
        training.inject("slow", 2)
        last = again.wait_for(lambda w: w["last_step"] == STEPS - 1)
        assert training.wait(LONGEST_S) == [0, 0, 0, 0], training.log
    finally:
        training.close()
    back = again.windows[0]
    assert (back["closed_by"], back["n_steps"]) == ("complete", 20)
    assert back["first_step"] <= step_when_back + 20
    # A window holds the steps that are seen first; right after an outage ranks send again what was
    # refused, each in its own time, so only later ones are sure to have no holes.
    assert last["n_steps"] == last["last_step"] - last["first_step"] + 1
    for window in (back, full, last):
        assert sorted(window["ranks"]) == ["0", "1", "2", "3"]
        assert (window["coverage"], window["missing_ranks"]) == (1.0, [])
    assert (last["largest_excess"]["rank"], last["largest_excess"]["section"]) == (2, "forward")


def last_step(training: Training) -> int:
    """As rank 0 has printed it."""
    reported = [line.split()[1] for line in training.log.splitlines() if line.startswith("step ")]
    return int(reported[-1]) if reported else 0


def endpoint_of(collector, protocol: str) -> str:
    return f"http://{collector.addresses['otlp_grpc' if protocol == 'grpc' else 'otlp_http']}"
