"""Slow GPUs behind asynchronous launches, one small case the whole way."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def one_case(benchmark):
    return benchmark("detection_gpu", "--seeds", "1", "--cases", "64 ST compute 1.10")


def test_kernels_find_what_the_hosts_clock_cannot(one_case):
    """The same run, told in six ways."""
    [ways] = one_case[0]["cases"].values()
    assert {way: reported["found"] for way, reported in ways.items()} == {
        "off": 0, "events": 1, "cupti": 1, "cupti, 1 in 10": 1, "cupti, 1 in 50": 1, "mixed": 1,
    }  # fmt: skip
    assert all(reported["wrong"] == 0 for reported in ways.values())


def test_a_slow_gpu_of_ten_per_cent_has_a_budget_of_fifty_steps(one_case):
    """And nobody else may be named."""
    result, sentences = one_case
    assert len(result["budgets"]) == 5
    assert result["missed"] == []
    assert sentences.count("budget met") == 5
