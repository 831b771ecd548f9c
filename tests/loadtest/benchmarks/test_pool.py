import pytest

from loadtest.benchmarks.pool import compare


def test_a_comparison_measures_both_ways():
    result = compare(num_parameters=20_000, repeats=1)
    assert result["value"] > 0
    assert result["ratio"] == pytest.approx(result["value"] / result["baseline"])
