"""When a save is due."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from otel_straggler.checkpoint import Manager, estimated_mtbf_s, optimal_interval_s
from otel_straggler.checkpoint.emergency import RequestFile
from otel_straggler.checkpoint.folder import list_checkpoints, read_history
from otel_straggler.checkpoint.restoring import knows_rank
from otel_straggler.errors import ConfigError

from .states import manager_in, state_at


@pytest.mark.parametrize(("blocking_s", "mtbf_s"), [(0.5, 600.0), (2.0, 7_200.0), (30.0, 900.0)])
def test_no_other_interval_costs_less(blocking_s: float, mtbf_s: float) -> None:
    """By Daly's exact cost of a run, within 1 %."""

    def cost(interval_s: float) -> float:
        return math.expm1((interval_s + blocking_s) / mtbf_s) / interval_s

    best = min(cost(blocking_s * factor / 100) for factor in range(10, 50_000, 5))
    assert cost(optimal_interval_s(blocking_s, 0.0, mtbf_s)) <= 1.01 * best


def test_saves_do_not_overlap() -> None:
    assert optimal_interval_s(0.1, 300.0, 60.0) == 300.0


def test_failures_shorten_the_mean_time_between_them() -> None:
    calm, failing = estimated_mtbf_s(0, 86_400.0, 1_024), estimated_mtbf_s(9, 86_400.0, 1_024)
    assert failing == pytest.approx(calm / 10)


def test_every_so_many_steps_are_saved(tmp_path: Path) -> None:
    with manager_in(tmp_path, every_steps=3, keep=9) as manager:
        for step in range(1, 8):
            manager.step(step, lambda step=step: state_at(step))
    assert [one.step for one in list_checkpoints(tmp_path)] == [6, 3]


def test_an_optimal_interval_is_stated_with_what_it_comes_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "otel_straggler")
    with manager_in(tmp_path, interval="optimal", mtbf_s=7_200.0) as manager:
        manager.save(1, state_at(1))
    (stated,) = [text for text in caplog.messages if text.startswith("checkpoints every ")]
    assert "a failure is expected every 2.0 h (0 so far)" in stated


def test_a_run_that_did_not_end_well_counts_as_a_failure(tmp_path: Path) -> None:
    manager = Manager(tmp_path, handle_sigterm=False)
    manager.close(is_clean=False)
    with manager_in(tmp_path):
        pass
    history = read_history(tmp_path)
    assert (history["attempts"], history["clean_ends"]) == (2, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every_steps": 1, "every_s": 2.0}, "expected one of every_steps, every_s, and interval"),
        ({"every_steps": 0}, r"Manager\(every_steps=...\): got 0; expected above 0"),
        ({"interval": "best"}, "got 'best'; expected 'optimal'"),
        ({"keep": 0}, r"Manager\(keep=...\): got 0"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Manager(tmp_path / "new", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_request_by_file_is_noticed_once(tmp_path: Path) -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []
    path = tmp_path / "request"
    path.write_text("of an earlier attempt")
    requests = RequestFile(path, lambda reason, stuck: asked.append((reason, stuck)))
    requests.poll()
    path.unlink()
    whole = tmp_path / "whole"  # its thread may look at any moment
    whole.write_text("rank 3 hangs\n3\n")
    whole.replace(path)
    requests.poll()
    requests.poll()
    requests.close()
    assert asked == [("rank 3 hangs", (3,))]


def test_an_agent_that_was_killed_while_it_wrote_its_request_is_heard(tmp_path: Path) -> None:
    """The file is there, and its reason is not."""
    asked: list[tuple[str, tuple[int, ...]]] = []
    path = tmp_path / "request"
    requests = RequestFile(path, lambda reason, stuck: asked.append((reason, stuck)))
    path.write_text("")
    requests.poll()
    requests.close()
    assert asked == [("request", ())]


def test_a_rank_that_a_checkpoint_does_not_know_keeps_what_it_has() -> None:
    names = ["random.rank 0.torch", "training.model.weight"]
    assert knows_rank(names, 0)
    assert not knows_rank(names, 1)
    assert knows_rank(["training.model.weight"], 1)
