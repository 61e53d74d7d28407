from functools import partial

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amsip.bandwidths import log_bandwidth, median_bandwidth
from amsip.kernels import SquaredExponential
from amsip.references.conditional import Conditional, observation_bandwidth
from amsip.responsibilities import log_responsibilities


def pairs(n: int, d: int, k: int, rng_seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rng_seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, x[:, :1] + 0.3 * torch.randn(n, k, generator=generator, dtype=torch.float64)


def test_responsibilities_are_the_normalised_kernel_of_observations():
    _, y = pairs(11, 3, 2)
    queries = y[:5] + 0.1
    expected = oracles.responsibilities(y.numpy(), queries.numpy(), 0.7)
    assert np.allclose(log_responsibilities(y, queries, 0.7).exp().numpy(), expected, atol=1e-12)


def test_responsibilities_survive_a_query_far_from_every_observation():
    _, y = pairs(11, 3, 2)
    weights = log_responsibilities(y, torch.full((2,), 1e5, dtype=torch.float64), 1e-3).exp()
    assert weights.sum().item() == pytest.approx(1.0)
    assert weights.argmax() == (y - 1e5).square().sum(-1).argmin()


def test_excluded_row_has_no_weight_and_the_rest_renormalise():
    _, y = pairs(11, 3, 2)
    own = torch.tensor([4, -1])
    weights = log_responsibilities(y, y[[4, 4]], 0.5, exclude=own).exp()
    full = oracles.responsibilities(y.numpy(), y[[4]].numpy(), 0.5)[0]
    assert weights[0, 4] == 0
    assert np.allclose(weights[1].numpy(), full, atol=1e-12)
    assert np.allclose(weights[0, 5:].numpy(), full[5:] / (1 - full[4]), atol=1e-12)


def test_untruncated_conditional_embeds_every_atom():
    x, y = pairs(17, 3, 2)
    conditional = Conditional(x, y, bandwidth=0.6, mass=1.0)
    posterior = conditional.given(y[:5])
    weights = oracles.responsibilities(y.numpy(), y[:5].numpy(), 0.6)
    assert torch.allclose(posterior.moments()[0], torch.tensor(weights) @ x, atol=1e-10)
    embedding = posterior.embed(SquaredExponential(0.9))
    kernel = partial(oracles.squared_exponential, h=0.9)
    expected = [oracles.kernel_mean(kernel, x[:1].numpy(), x.numpy(), w)[0] for w in weights]
    assert np.allclose(embedding.mean(x[0].expand(5, 1, 3))[:, 0].numpy(), expected, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 3.0), st.floats(0.3, 0.999), st.integers(0, 50))
def test_truncation_keeps_the_fewest_atoms_that_hold_the_mass(bandwidth, mass, rng_seed):
    x, y = pairs(23, 2, 2, rng_seed)
    conditional = Conditional(x, y, bandwidth=bandwidth, mass=mass)
    kept = conditional.truncation(y[:3])
    ordered = -np.sort(-oracles.responsibilities(y.numpy(), y[:3].numpy(), bandwidth), axis=1)
    for query in range(3):
        count = int(kept.atoms[query])
        assert ordered[query, :count].sum() >= mass - 1e-9
        assert count == 1 or ordered[query, : count - 1].sum() < mass + 1e-9
        assert kept.share[query].item() == pytest.approx(ordered[query, :count].sum())
        assert kept.ess[query].item() == pytest.approx(1 / (ordered[query] ** 2).sum())
    posterior = conditional.given(y[:3])
    carrying = (posterior.normalised_weights > 0).sum(-1)
    assert (carrying <= kept.atoms).all()
    assert torch.allclose(posterior.normalised_weights.sum(-1), torch.ones(3, dtype=torch.float64))


def test_cap_bounds_the_atoms_and_the_share_says_so():
    x, y = pairs(200, 2, 2)
    conditional = Conditional(x, y, bandwidth=5.0, cap=7)
    assert conditional.given(y[0]).atoms.shape == (7, 2)
    assert conditional.truncation(y[0]).share < 0.1


def test_batch_of_queries_is_a_loop_of_single_queries():
    x, y = pairs(29, 3, 2)
    conditional = Conditional(x, y, bandwidth=0.4)
    batch = conditional.given(y[:6].reshape(2, 3, 2))
    for i in range(2):
        for j in range(3):
            single = conditional.given(y[3 * i + j])
            assert torch.allclose(batch.moments()[1][i, j], single.moments()[1], atol=1e-12)


def test_matched_gaussian_model_gives_the_memorised_posterior():
    x, _ = pairs(4000, 1, 1)
    noise = 0.5
    y = x + noise * torch.randn(4000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    mean, cov = Conditional(x, y, bandwidth=0.05).given(torch.tensor([1.0])).moments()
    gain = 1.0 / (1.0 + noise**2)
    assert mean.item() == pytest.approx(gain, abs=0.15)
    assert cov.item() == pytest.approx(1.0 - gain, abs=0.08)


def test_default_bandwidth_is_half_the_log_rule_of_the_observations():
    x, y = pairs(31, 2, 3)
    assert Conditional(x, y).sigma_y == pytest.approx(0.5 * float(log_bandwidth(y)))
    assert observation_bandwidth(y, share=0.25, rule=median_bandwidth) == pytest.approx(
        0.25 * float(median_bandwidth(y))
    )


def test_bad_datasets_are_named():
    x, y = pairs(7, 2, 2)
    with pytest.raises(ValueError, match="must be pairs"):
        Conditional(x, y[:5])
    with pytest.raises(ValueError, match="row 3 is not"):
        Conditional(x.index_fill(0, torch.tensor([3]), torch.nan), y)
    with pytest.raises(ValueError, match="`mass` must be in"):
        Conditional(x, y, mass=0.0)
    with pytest.raises(ValueError, match="`queries` must have 2 coordinates"):
        Conditional(x, y).given(torch.zeros(3))
    with pytest.raises(ValueError, match="`queries` must be finite"):
        Conditional(x, y).given(torch.tensor([0.0, torch.nan]))
