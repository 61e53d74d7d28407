import numpy as np
import pytest
import torch

from amsip import Gaussian, Mixture, SquaredExponential, mmd2, optimal_weights, uniform_weights
from amsip.bandwidths import log_bandwidth
from amsip.maps.svgd import Svgd, svgd_direction, tune_svgd


def points(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng_seed))


def gaussian() -> Gaussian:
    return Gaussian(torch.tensor([1.0, -1.0]).double(), torch.tensor([[1.0, 0.3], [0.3, 0.5]]).double())


def test_direction_by_explicit_sums():
    """phi_i = mean_j [k(x_j, x_i) score_j + grad_{x_j} k(x_j, x_i)]."""
    x, h = points(5, 2), 0.7
    scores = gaussian().score(x)
    expected = np.zeros((5, 2))
    for i in range(5):
        for j in range(5):
            gap = (x[j] - x[i]).numpy()
            k = np.exp(-(gap @ gap) / (2 * h * h))
            expected[i] += (k * scores[j].numpy() - k * gap / h**2) / 5
    np.testing.assert_allclose(
        svgd_direction(x, scores, SquaredExponential(h)).numpy(), expected, rtol=1e-9, atol=1e-11
    )


def test_one_particle_climbs_to_the_mode():
    cloud = Svgd(gaussian().score, bandwidth=1.0, rate=0.2, steps=300)(torch.zeros(1, 2, dtype=torch.float64))
    torch.testing.assert_close(cloud[0], gaussian().mean, rtol=1e-6, atol=1e-6)


def test_a_cloud_takes_the_moments_of_its_target():
    cloud = Svgd(gaussian().score, rate=0.4, steps=400)(points(50, 2))
    torch.testing.assert_close(cloud.mean(0), gaussian().mean, rtol=0.0, atol=0.05)
    torch.testing.assert_close(torch.cov(cloud.mT, correction=0), gaussian().cov, rtol=0.25, atol=0.1)


def test_queries_keep_their_own_bandwidth_and_do_not_see_each_other():
    seeds = points(3, 5, 2) * torch.tensor([0.1, 1.0, 10.0]).double()[:, None, None]
    svgd = Svgd(gaussian().score, rate=0.1, steps=5)
    together = svgd(seeds)
    for i in range(3):
        torch.testing.assert_close(svgd(seeds[i]), together[i], rtol=1e-8, atol=1e-9)
        assert svgd.kernel(seeds).bandwidth[i].item() == pytest.approx(log_bandwidth(seeds[i]).item())


def test_the_grid_is_complete_shared_runs_are_exact_and_divergence_loses():
    embedding, seeds = gaussian().embed(SquaredExponential(0.5)), points(3, 5, 2)
    tuned = tune_svgd(
        gaussian().score, seeds, embedding, bandwidths=(None, 1.0), rates=(0.1, 50.0), iterations=(40, 10)
    )
    assert len(tuned.grid) == 8
    assert [s for _, s in tuned.grid] == sorted(s for _, s in tuned.grid)
    assert tuned.svgd.rate == 0.1
    alone = tuned.svgd(seeds)
    assert mmd2(alone, uniform_weights(alone), embedding).mean().item() == pytest.approx(tuned.score, rel=1e-9)


def test_our_weights_on_its_cloud_are_never_worse():
    posterior = Mixture(
        torch.ones(2), torch.tensor([[-2.0, 0.0], [2.0, 0.0]]).double(), torch.eye(2).double().expand(2, 2, 2)
    )
    embedding = posterior.embed(SquaredExponential(1.0))
    cloud = Svgd(posterior.score, rate=0.2, steps=50)(points(7, 5, 2))
    equal, best = uniform_weights(cloud), optimal_weights(cloud, embedding)
    assert (mmd2(cloud, best, embedding) <= mmd2(cloud, equal, embedding) + 1e-12).all()


@pytest.mark.parametrize("arguments", [{"rate": 0.0}, {"steps": -1}, {"bandwidth": -1.0}])
def test_refuses_meaningless_options(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Svgd(gaussian().score, **arguments)
