"""The benchmark of kernel histograms, with a tiny dose."""

from __future__ import annotations


def test_every_part_has_a_price_for_each_data_point(benchmark):
    """Sending, reading, keeping, scoring."""
    result, sentences = benchmark("kernel_times", "--ranks", "4", "--kernels", "5")
    assert result["points"] == 4 * 5 * 5
    assert set(result["us_per_point"]) == {"encode", "decode", "decode_in_python", "keep", "score"}
    assert all(us > 0 for us in result["us_per_point"].values())
    ((name, measured),) = result["budgets"].items()
    assert measured["unit"] == "µs"
    assert name in sentences
