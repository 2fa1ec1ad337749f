"""The benchmark on unseen noise: the whole way once, small, and what its runs promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detection.page import UNSEEN, fill
from benchmarks.detection.unseen import held_out, noises
from benchmarks.detection.unseen.__main__ import MEASURED, TUNING_SEEDS, choose
from benchmarks.detection.unseen.families import FAMILIES
from benchmarks.detection.unseen.report import TITLES, markdown
from benchmarks.detection.unseen.running import make_run
from benchmarks.detection.unseen.runs import Limits, World, correlated, draw_world
from benchmarks.detection.unseen.worlds import _blocked_s

ROOT = Path(__file__).parents[2]
SMALL = Limits(ranks=8, steps=60)


def run(*arguments, code=0):
    command = [sys.executable, "-m", "benchmarks.detection.unseen", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_a_small_dose_reports_every_table_and_the_seed(tmp_path):
    """Families, targets, limits: from one command, and the same again with its seed."""
    file = tmp_path / "unseen.json"
    names = "healthy/small-*,fault/ar-1*,limits"
    done = run("--quick", "--families", names, "--seed", "7", "--json", str(file))
    result = json.loads(file.read_text())
    assert result["seed"] == 7
    assert "seed 7:" in done.stdout
    assert {row["family"] for row in result["tables"]["families"]} == {
        "healthy/small-white",
        "healthy/small-ar",
        "healthy/small-contention",
        "fault/ar-10",
        "fault/ar-15",
    }
    assert result["tables"]["limits"]
    assert all(f"| {target['target']} |" in done.stdout for target in result["targets"])
    assert all(TITLES[name] in done.stdout for name in result["tables"])


def test_an_unknown_family_is_refused():
    """A typo must not look like a clean result."""
    assert "nonesuch" in run("--families", "nonesuch", code=2).stderr


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.origin != "traces"], ids=lambda f: f.name
)
def test_a_run_is_consistent_and_the_same_again(family):
    """Sections fill the step, all ranks leave the collective together, seeds repeat runs."""
    made = make_run(family, 7, 0, SMALL)
    again = make_run(family, 7, 0, SMALL)
    assert np.array_equal(made.seconds, again.seconds, equal_nan=True)
    other = make_run(family, 8, 0, SMALL)
    assert other.seconds.shape != made.seconds.shape or (other.seconds != made.seconds).any()
    seconds = np.nansum(made.seconds, axis=2)
    assert (made.end_s - made.begin_s - seconds > -1e-6).all()
    sync = [section.name for section in made.sections].index("sync") + 1
    left_s = made.end_s - np.nansum(made.seconds[..., sync:], axis=2)
    assert np.ptp(left_s, axis=1).max() < 1e-6
    required = [label for label in made.labels if label.is_required]
    assert not (family.is_healthy and required)
    tables = list(made.tables(5))
    assert sum(map(len, tables)) == made.world.steps
    assert all(label.onset_step >= made.world.first_step for label in made.labels)


def test_tuning_seeds_leave_out_what_is_held_out():
    """Who tunes never sees it; a third of the families are held out."""
    tuning, notes = choose("*", TUNING_SEEDS - 1)
    assert all(family.origin != "held out" for family in tuning)
    assert "held-out families are left out" in notes[0]
    never_seen = [family for family in FAMILIES if family.origin == "held out"]
    assert 3 * len(never_seen) >= len(FAMILIES)
    assert all(family in choose("*", TUNING_SEEDS)[0] for family in never_seen)


@pytest.mark.parametrize("ranks", [(2, 8), (8, 128)], ids=["small", "large"])
@pytest.mark.parametrize(
    "noise",
    [noises.contention, held_out.pauses, held_out.ramps, held_out.migrations],
    ids=lambda f: f.__name__,
)
def test_nobody_is_slow_for_long_in_noise_that_moves(noise, ranks):
    """Over 300 steps or more, no rank's mean is more than 2 % from that of its peers."""
    for seed in range(TUNING_SEEDS, TUNING_SEEDS + 10):
        rng = np.random.default_rng(seed)
        world = draw_world(rng, Limits(), ranks=ranks)
        seconds = np.exp(noise(rng, world).log)
        sums = np.cumsum(np.pad(seconds, ((1, 0), (0, 0))), axis=0)
        for steps in range(300, world.steps + 1, 20):
            means = (sums[steps:] - sums[:-steps]) / steps
            peers = (means.sum(axis=1, keepdims=True) - means) / (world.ranks - 1)
            assert np.abs(means / peers - 1.0).max() < 0.02


def test_correlated_noise_has_its_spread_and_correlation():
    """Stationary from the first step on."""
    log = correlated(np.random.default_rng(1), 400, 4000, 0.9)
    assert log[0].std() == pytest.approx(1.0, abs=0.05)
    assert log[-1].std() == pytest.approx(1.0, abs=0.05)
    assert (log[1:] * log[:-1]).mean() == pytest.approx(0.9, abs=0.02)


def test_one_loader_process_that_is_too_slow_blocks_its_rank():
    """A batch of 3 s for a step of 2 s: 1 s of every step is spent waiting for it."""
    world = World(ranks=2, steps=30)
    work = {"work": np.full((30, 2), 2.0)}
    batches_s = np.tile([3.0, 1.0], (30, 1))
    blocked_s = _blocked_s(world, work, {}, np.zeros(30), batches_s, 1)
    assert blocked_s[10:, 0] == pytest.approx(1.0)
    assert blocked_s[10:, 1] == pytest.approx(0.0)


def test_the_page_shows_the_committed_measurement():
    """Written from the JSON next to it, never by hand."""
    assert fill(UNSEEN, markdown(json.loads(MEASURED.read_text())), check=True) == 0
