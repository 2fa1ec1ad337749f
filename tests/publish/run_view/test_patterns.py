"""The word for what the matrix of workers looks like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.collector.views.heat import heat_json
from otel_straggler.collector.views.patterns import PATTERN_TEXTS, hot_cells, pattern_of
from otel_straggler.model.verdict import RunVerdicts

from . import made


def noisy(stages: int, data: int, noise: float = 0.004, seed: int = 0) -> np.ndarray:
    return 1.0 + noise * np.random.default_rng(seed).standard_normal((stages, data))


def test_one_hot_worker_is_a_cell() -> None:
    cells = noisy(4, 8)
    cells[0, 5] = 1.2
    assert pattern_of(cells, slowdown=1.1) == "hot_cell"
    assert np.argwhere(hot_cells(cells)).tolist() == [[0, 5]]


@pytest.mark.parametrize(("stages", "data"), [(2, 2), (2, 16), (4, 8), (8, 2), (4, 1)])
def test_a_hot_last_stage_is_a_row(stages: int, data: int) -> None:
    """Also where it is half of the matrix, and where a stage is a single worker."""
    cells = noisy(stages, data)
    cells[-1] = 1.17
    assert pattern_of(cells, slowdown=1.2) == "hot_row"


def test_a_hot_data_rank_is_a_column() -> None:
    cells = noisy(4, 8)
    cells[:, 3] = 1.2
    assert pattern_of(cells, slowdown=1.2) == "hot_column"


def test_heat_that_moves_is_spread() -> None:
    """Over a hundred steps every worker was slow for a while: all alike, and a loss all the same;
    or it is known from the times of the steps."""
    assert pattern_of(noisy(4, 8), slowdown=1.3) == "spread"
    assert pattern_of(noisy(1, 16), slowdown=float("nan"), moves=True) == "spread"
    many = noisy(4, 8)
    many.ravel()[::3] = 1.2
    assert pattern_of(many, slowdown=1.2) == "spread"


def test_noise_is_even() -> None:
    for seed in range(200):
        assert pattern_of(noisy(4, 8, 0.01, seed), slowdown=1.02) == "even"


def test_a_hang_goes_before_heat_and_no_layout_is_unknown() -> None:
    cells = noisy(4, 8)
    cells[0, 5] = 2.0
    assert pattern_of(cells, is_silent=True) == "silent"
    assert pattern_of(np.full((1, 4), np.nan)) == "unknown"


@given(
    st.integers(1, 6),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
    st.floats(0.5, 3.0) | st.just(float("nan")),
)
def test_every_matrix_has_a_word(stages: int, data: int, seed: int, slowdown: float) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.uniform(0.5, 4.0, (stages, data))
    cells[rng.random(cells.shape) < 0.3] = np.nan
    assert pattern_of(cells, slowdown=slowdown) in PATTERN_TEXTS


def test_layer_2_says_how_hot_a_worker_is() -> None:
    """It looks at a hundred steps, the window at twenty."""
    heat = tuple((p, d, 1.3 if p == 1 else 1.0) for p in range(2) for d in range(4))
    seen = made.seen(table=made.table_of(8, 2), world=made.summary(slowdown=1.2, heat=heat))
    result = heat_json(seen)
    assert (result["stages"], result["data_ranks"]) == ([0, 1], [0, 1, 2, 3])
    assert result["cells"][4:] == [[1, d, 1.3] for d in range(4)]
    assert (result["pattern"], result["pattern_text"]) == ("hot_row", PATTERN_TEXTS["hot_row"])
    assert (result["base"], result["section"]) == ("step", None)


def test_a_named_worker_is_as_hot_as_its_verdict_says() -> None:
    """1.5 times the time of its peers, not the 1.3 that it alone adds to a step of mean workers."""
    heat = tuple((p, d, 1.3 if (p, d) == (1, 1) else 1.0) for p in range(2) for d in range(4))
    table, world = made.table_of(8, 2, {5: 1.5}), made.summary(slowdown=1.2, heat=heat)
    result = heat_json(made.seen(made.verdict(slowdown=1.5), table=table, world=world))
    assert result["cells"][5] == [1, 1, 1.5]
    assert (result["base"], result["section"]) == ("peers", "forward")
    assert result["pattern"] == "hot_cell"
    nobody = heat_json(made.seen(table=table, world=world))
    assert (nobody["cells"][5], nobody["base"]) == ([1, 1, 1.3], "step")
    recovered = heat_json(
        made.seen(made.verdict(slowdown=1.5), table=made.table_of(8, 2), world=world)
    )
    assert recovered["base"] == "step"  # the newest window does not show it


def test_a_worker_of_several_ranks_is_as_hot_as_the_named_one() -> None:
    """The mean of four ranks would hide three quarters of it."""
    table = made.table_of(8, 2, {5: 1.4})
    table = replace(table, parallels=[(("data", r // 4), ("tensor", r % 4)) for r in range(8)])
    heat = ((0, 0, 1.0), (0, 1, 1.1))
    result = heat_json(made.seen(made.verdict(), table=table, world=made.summary(heat=heat)))
    assert result["cells"] == [[0, 0, 1.0], [0, 1, 1.4]]


def test_before_layer_2_the_newest_window_does() -> None:
    result = heat_json(made.seen(table=made.table_of(8, 2, {5: 1.5}), run_verdicts=RunVerdicts()))
    assert result["pattern"] == "hot_cell"
    assert result["cells"][5] == [1, 1, 1.5]


def test_without_a_layout_all_ranks_are_one_row() -> None:
    result = heat_json(
        made.seen(
            table=made.table_of(6, slow={4: 1.4}, with_layout=False), run_verdicts=RunVerdicts()
        )
    )
    assert (result["stages"], result["data_ranks"]) == ([0], [0, 1, 2, 3, 4, 5])
    assert result["pattern"] == "hot_cell"


def test_silent_workers_are_placed() -> None:
    table = made.table_of(8, 2)
    lost = heat_json(made.seen(table=table, hang=made.result_of(8, "partly_lost", "lost", [6])))
    assert (lost["silent"], lost["pattern"]) == ([[1, 2]], "silent")
    stuck = made.result_of(8, "stuck", "never_joined", [1])
    assert heat_json(made.seen(table=table, hang=stuck))["silent"] == [[0, 1]]
    joined = made.result_of(8, "stuck", "joined_but_stuck")
    assert heat_json(made.seen(table=table, hang=joined))["pattern"] == "silent"


def test_many_hot_workers_of_a_slow_host_are_no_work_that_moves() -> None:
    """Nearly half of them are hot: together they are one thing, and the host is named."""
    seen = made.seen(
        made.verdict(scope="host", rank=None, node="node-1"),
        table=made.table_of(20, slow=dict.fromkeys(range(8, 16), 1.4)),
    )
    result = heat_json(seen)
    assert result["pattern"] == "hot_cell"
    assert result["pattern_text"] == "In forward: All hot workers are on node-1."
    elsewhere = made.seen(
        made.verdict(scope="host", rank=None, node="node-2"),
        table=made.table_of(20, slow=dict.fromkeys(range(8, 16), 1.4)),
    )
    assert heat_json(elsewhere)["pattern"] == "spread"


def test_only_who_is_waited_for_is_said_to_be() -> None:
    """Others may go on, as far as anybody sees."""
    waited = made.result_of(8, "partly_lost", "lost", [6])
    assert waited.blame is not None
    alone = replace(waited, blame=replace(waited.blame, victims=np.zeros(8, bool)))
    reported = {
        result: heat_json(made.seen(table=made.table_of(8, 2), hang=result))["pattern_text"]
        for result in (waited, alone)
    }
    assert reported[waited].endswith("the others wait for it.")
    assert reported[alone] == "A worker is silent or stuck; no rank waits for it."


def test_sequences_of_unequal_length_are_spread_whatever_the_cells_say() -> None:
    reported = made.verdict(scope="run", rank=None, cause="sequence_imbalance", subject_id="run/x")
    cells = tuple((0, d, 1.3 if d == 2 else 1.0) for d in range(8))
    seen = made.seen(reported, world=made.summary(slowdown=1.3, heat=cells))
    assert heat_json(seen)["pattern"] == "spread"


def test_nothing_known_is_empty() -> None:
    result = heat_json(made.seen(table=None, run_verdicts=RunVerdicts()))
    assert (result["cells"], result["pattern"]) == ([], "unknown")
