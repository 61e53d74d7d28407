import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amsip.bandwidths import dimension_bandwidth, log_bandwidth, median_bandwidth


def draws(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng_seed))


@pytest.mark.parametrize("n", [2, 3, 7, 8])
def test_median_over_pairs_without_the_diagonal(n):
    x = draws(n, 3)
    expected = oracles.median_squared_distance(x.numpy())
    assert median_bandwidth(x).item() == pytest.approx(expected**0.5, rel=1e-12)


def test_log_rule_divides_by_twice_the_log_of_one_more_than_the_count():
    x = draws(11, 2)
    expected = (oracles.median_squared_distance(x.numpy()) / (2 * np.log(12))) ** 0.5
    assert log_bandwidth(x).item() == pytest.approx(expected, rel=1e-12)


def test_each_query_has_its_own():
    x = draws(2, 3, 7, 5)
    batch = log_bandwidth(x)
    assert batch.shape == (2, 3)
    singles = [log_bandwidth(x[i, j]).item() for i in range(2) for j in range(3)]
    assert batch.flatten().tolist() == pytest.approx(singles, rel=1e-12)


@given(st.floats(1e-6, 1e6), st.integers(0, 100))
def test_scales_with_the_samples(scale, rng_seed):
    x = draws(7, 2, rng_seed=rng_seed)
    assert median_bandwidth(scale * x + 3.0).item() == pytest.approx(scale * median_bandwidth(x).item(), rel=1e-6)


def test_thinning_takes_evenly_spaced_rows_and_counts_only_them():
    x = draws(13, 2)
    kept = x[[0, 2, 5, 7, 10]]
    assert log_bandwidth(x, rows=5).item() == pytest.approx(log_bandwidth(kept).item(), rel=1e-12)


def test_dimension_rule_couples_whitened_pairs_at_exp_minus_one():
    x = draws(2000, 13)
    h = dimension_bandwidth(13)
    assert median_bandwidth(x).item() ** 2 / (2 * h**2) == pytest.approx(1.0, rel=0.06)


def test_one_sample_and_coincident_samples_are_named():
    with pytest.raises(ValueError, match="at least two draws"):
        median_bandwidth(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="query 1 coincide"):
        median_bandwidth(torch.stack([draws(5, 2), torch.zeros(5, 2, dtype=torch.float64)]))
