"""`python -m benchmarks.compare_commits`: one benchmark of this checkout against itself."""

from __future__ import annotations

import pytest

from .conftest import ROOT


def test_figures_of_both_sides_stand_next_to_each_other(benchmark) -> None:
    """With all values, their ratios, and a line for people."""
    arguments = ("--parent", str(ROOT), "--smallest", "--turns", "1", "verdict_window")
    result, lines = benchmark("compare_commits", *arguments)
    assert result["parent"] == result["this"]
    figures = result["benchmarks"]["verdict_window"]["figures"]
    assert figures.keys() == {"first_window/cpu_s", "window/cpu_s", "peak_gib"}
    cpu = figures["window/cpu_s"]
    ratio = cpu["this"][0] / cpu["parent"][0]
    assert cpu["min_ratio"] == cpu["median_ratio"] == pytest.approx(ratio, abs=1e-3)
    assert "window/cpu_s" in lines


@pytest.mark.parametrize(("wrong", "word"), [(["nothing"], "nothing"), (["--parent", "/x"], "/x")])
def test_what_is_not_there_is_refused(wrong: list[str], word: str, capsys) -> None:
    """With the names that there are."""
    from benchmarks.compare_commits import main

    with pytest.raises(SystemExit):
        main(["--parent", str(ROOT), *wrong])
    assert word in capsys.readouterr().err
