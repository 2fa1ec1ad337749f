"""The benchmark of trainers: its loops train, and its table is the page's."""

from __future__ import annotations

import pytest

from otel_straggler.client.recording import RECORDER
from otel_straggler.testing import CapturedRequests

torch = pytest.importorskip("torch")
trainers = pytest.importorskip("benchmarks.trainers.__main__")


def test_the_table_of_the_page_is_of_the_committed_measurement() -> None:
    """``--render`` writes it."""
    page = trainers.PAGE.read_text()
    assert trainers.rendered(page) == page


def test_every_measured_row_shows_what_it_must() -> None:
    """Nineteen of twenty, nobody in healthy runs, at most one percent of a step."""
    rows = trainers.json.loads(trainers.MEASURED.read_text())["rows"]
    assert {"bare_watch", "zero_code"} <= set(rows)
    assert {name: row.get("missed") for name, row in rows.items() if row.get("missed")} == {}


def test_a_bare_loop_trains_watched_and_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a world of one: the same steps, recorded or not."""
    import torch.distributed as dist

    from benchmarks.inside_backward.work import PACE
    from benchmarks.trainers.loops import LOOPS

    PACE.plan({}, 0.001)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with CapturedRequests() as sink:
            monkeypatch.setenv("OTEL_STRAGGLER_ENDPOINT", sink.url)
            for name in ("bare_watch", "zero_code"):
                LOOPS[name].train(4, False)
                assert RECORDER.context is None
                LOOPS[name].train(4, True)
            steps = [s.attributes["training.step"] for s in sink.spans() if s.name == "step"]
        assert sorted(steps) == [0, 0, 1, 1, 2, 2, 3]
    finally:
        dist.destroy_process_group()
