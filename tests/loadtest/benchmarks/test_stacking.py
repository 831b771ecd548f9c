import pytest

from fedat_service.errors import ConfigError
from loadtest.benchmarks.stacking import compare


def test_a_comparison_measures_both_ways():
    result = compare("logistic", num_examples=20, repeats=1)
    assert result["value"] > 0
    assert result["ratio"] == pytest.approx(result["value"] / result["baseline"])


def test_a_model_that_cannot_be_stacked_is_refused():
    with pytest.raises(ConfigError, match="mnist-cnn"):
        compare("mnist-cnn", num_examples=20, repeats=1)
