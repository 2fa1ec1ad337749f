"""Named scenarios say who is slow; scoring has to find just that."""

import numpy as np
import pytest

from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.errors import ConfigError
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.simulate.scenarios import SCENARIOS, WAIT, Plan, simulate


def time_per_rank(batch: ObservationBatch, section: str) -> dict[int, float]:
    code = next(i for i, s in enumerate(batch.sections) if s.name == section)
    return {
        source.rank: float(
            np.median(batch.duration_s[(batch.source == i) & (batch.section == code)])
        )
        for i, source in enumerate(batch.sources)
    }


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", range(3))
def test_scoring_lists_exactly_what_the_scenario_made_slow(name, seed):
    """Every window lists the slow ranks in their section, and names the ranks that are silent."""
    run = simulate(name, Plan(seed=seed))
    scorer = Scorer()
    scorer.observe(run.batch, 0)
    windows = scorer.close_all()
    assert len(windows) == 5
    for window in windows:
        listed = {(s.source.rank, s.section) for s in window.stragglers}
        assert listed == run.truth.slow
        assert window.missing_ranks == run.truth.missing


def test_victims_wait_and_the_slow_rank_does_not():
    """Only the rank that arrives last has a short gradient_sync."""
    waits = time_per_rank(simulate("one_slow_rank", Plan(slow_rank=3)).batch, WAIT)
    own = waits.pop(3)
    assert own < min(waits.values()) / 3


def test_the_largest_excess_is_the_slow_rank_in_its_section():
    """What the demo and top rank by points at the cause, not at those who wait."""
    scorer = Scorer()
    scorer.observe(simulate("one_slow_rank", Plan(slow_rank=2, section="data_loading")).batch, 0)
    excess = scorer.close_all()[-1].largest_excess
    assert excess is not None
    assert (excess.source.rank, excess.section) == (2, "data_loading")


def test_before_the_onset_no_rank_is_slow():
    """A run that degrades begins healthy."""
    scorer = Scorer()
    scorer.observe(simulate("one_slow_rank", Plan(onset_step=60)).batch, 0)
    slow = [{s.source.rank for s in w.stragglers} for w in scorer.close_all()]
    assert slow[:3] == [set(), set(), set()]
    assert all(5 in ranks for ranks in slow[3:])


def test_sections_of_a_rank_never_overlap_and_all_leave_the_wait_together():
    """Start times are those of one clock on which the ranks run in lockstep."""
    batch = simulate("one_slow_rank", Plan(steps=30)).batch
    ends = batch.start_ns + np.rint(batch.duration_s * 1e9).astype(np.int64)
    for code in range(len(batch.sources)):
        rows = batch.source == code
        assert (batch.start_ns[rows][1:] >= ends[rows][:-1]).all()
    sync = next(i for i, s in enumerate(batch.sections) if s.name == WAIT)
    in_sync = (batch.section == sync) & (batch.step == 29)
    own_noise_ns = 30 * 4_000_000
    assert np.ptp(ends[in_sync]) < own_noise_ns


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    """A seed is all it takes to see a run again."""
    one, same, other = (simulate("healthy", Plan(seed=s)).batch.duration_s for s in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_sources_tell_node_session_and_world_size():
    """What a real rank would say of itself."""
    sources = simulate("healthy", Plan(ranks=8, ranks_per_node=4)).batch.sources
    assert [s.node for s in sources] == ["node-0"] * 4 + ["node-1"] * 4
    assert {s.world_size for s in sources} == {8}
    assert len({s.session_id for s in sources}) == 8


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"ranks": 0}, "--ranks"),
        ({"steps": 0}, "--steps"),
        ({"slow_rank": 8}, "--slow-rank"),
        ({"slowdown": 0.5}, "--slowdown"),
        ({"slowdown": float("nan")}, "--slowdown"),
        ({"noise": 0.9}, "--noise"),
        ({"section": WAIT}, "--section"),
        ({"ranks_per_node": 0}, "--ranks-per-node"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_flag(wrong, named):
    """The message says which flag to change."""
    with pytest.raises(ConfigError, match=named):
        Plan(**wrong)


def test_an_unknown_scenario_is_answered_with_the_known_ones():
    """Nobody has to look up the names."""
    with pytest.raises(ConfigError, match="one_slow_rank"):
        simulate("slow")
