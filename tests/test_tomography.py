import itertools
import math

import numpy as np
import pytest
import torch

from amsip.problems.linear import LinearGaussian
from amsip.problems.projector import RayProjector
from amsip.problems.tomography import tomography
from amsip.problems.toys import tomography_latent

SMALL = RayProjector(size=7, angles=5, detectors=3, steps=11, half_range=70.0)


def ray_sum(image: np.ndarray, angle: float, offset: float, steps: int) -> float:
    """One ray by a loop over its points, reading a bilinear image that is zero off its grid."""
    size = len(image)
    padded = np.zeros((size + 2, size + 2))
    padded[1:-1, 1:-1] = image
    points = np.linspace(-math.sqrt(2.0), math.sqrt(2.0), steps)
    total = 0.0
    for t in points:
        x = (-offset * math.sin(angle) + t * math.cos(angle) + 1.0) / 2.0 * (size - 1) + 1.0
        y = (offset * math.cos(angle) + t * math.sin(angle) + 1.0) / 2.0 * (size - 1) + 1.0
        column, row = math.floor(x), math.floor(y)
        if not (0 <= column <= size and 0 <= row <= size):
            continue
        u, v = x - column, y - row
        upper = (1 - u) * padded[row, column] + u * padded[row, column + 1]
        lower = (1 - u) * padded[row + 1, column] + u * padded[row + 1, column + 1]
        total += (1 - v) * upper + v * lower
    return total * (points[1] - points[0])


def test_ray_sums_are_those_of_a_loop_over_points():
    image = torch.rand(49, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = [
        ray_sum(image.reshape(7, 7).numpy(), math.radians(angle), offset, 11)
        for angle in np.linspace(-70.0, 70.0, 5)
        for offset in np.linspace(-1.0, 1.0, 3)
    ]
    assert np.allclose(SMALL.project(image).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("projector", [SMALL, RayProjector(16, 16, 16, 32, 75.0), RayProjector(20, 9, 31, 40, 60.0)])
def test_backprojection_is_the_adjoint(projector):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(3, projector.pixels, dtype=torch.float64, generator=generator)
    readings = torch.randn(3, projector.readings, dtype=torch.float64, generator=generator)
    seen = (projector.project(images) * readings).sum(-1)
    returned = (images * projector.backproject(readings)).sum(-1)
    assert torch.allclose(seen, returned, rtol=1e-12)


def relative_error(projector: RayProjector, image: torch.Tensor, exact: torch.Tensor) -> float:
    found = projector.project(image)
    return ((found - exact).norm() / exact.norm()).item()


def scaled(size: int) -> RayProjector:
    return RayProjector(size=size, angles=13, detectors=29, steps=4 * size, half_range=75.0)


def offsets_from(projector: RayProjector, x: float, y: float) -> torch.Tensor:
    """The distance of every ray from a point."""
    angle, offset = projector.rays
    return (offset - (y * angle.cos() - x * angle.sin())).abs()


def disc_error(size: int) -> float:
    projector, radius, centre = scaled(size), 0.45, (0.2, -0.15)
    distance = (projector.centres - projector.centres.new_tensor(centre)).norm(dim=-1)
    # a pixel cut by the rim holds roughly its share of the disc
    image = ((radius - distance) * (size - 1) / 2.0 + 0.5).clamp(0.0, 1.0)
    chords = 2.0 * (radius**2 - offsets_from(projector, *centre).square()).clamp_min(0.0).sqrt()
    return relative_error(projector, image, chords)


def test_disc_has_its_chord_lengths_and_they_sharpen_with_resolution():
    coarse, middle, fine = (disc_error(size) for size in (17, 33, 65))
    assert coarse < 0.08
    assert middle < 0.6 * coarse
    assert fine < 0.6 * middle


def blob_error(size: int) -> float:
    projector, width, centre = scaled(size), 0.16, (-0.1, 0.2)
    square = (projector.centres - projector.centres.new_tensor(centre)).square().sum(-1)
    exact = math.sqrt(2.0 * math.pi) * width * torch.exp(-0.5 * offsets_from(projector, *centre).square() / width**2)
    return relative_error(projector, torch.exp(-0.5 * square / width**2), exact)


def test_smooth_images_are_integrated_to_second_order():
    errors = [blob_error(size) for size in (17, 33, 65)]
    orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert min(orders) > 1.8, (errors, orders)


def test_projection_keeps_the_precision_and_the_axes_of_the_images():
    images = torch.rand(2, 5, 49, generator=torch.Generator().manual_seed(2))
    before = images.clone()
    readings = SMALL.project(images)
    assert readings.dtype == torch.float32
    assert readings.shape == (2, 5, 15)
    assert torch.equal(images, before)
    assert torch.allclose(readings[1, 3], SMALL.project(images[1, 3]), atol=1e-6)
    assert SMALL.backproject(readings).shape == images.shape


def test_projection_has_the_matrix_as_its_derivative():
    image = torch.rand(49, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    assert torch.autograd.gradcheck(SMALL.project, image)


def test_bad_geometries_are_named():
    with pytest.raises(ValueError, match="`detectors`"):
        RayProjector(size=7, angles=5, detectors=1, steps=11, half_range=70.0)
    with pytest.raises(ValueError, match="`half_range`"):
        RayProjector(size=7, angles=5, detectors=3, steps=11, half_range=0.0)
    with pytest.raises(ValueError, match="`images`"):
        SMALL.project(torch.zeros(48))


PROBLEM = tomography()
TINY = tomography(SMALL, noise=0.3, shift=0.7, power=2.5, scale=1.3)


def drawn(problem: LinearGaussian, n: int = 3):
    return problem.simulate(n, generator=torch.Generator().manual_seed(4))


def loop_laplacian(size: int) -> np.ndarray:
    matrix = np.zeros((size**2, size**2))
    for row in range(size):
        for column in range(size):
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                r, c = row + down, column + right
                if 0 <= r < size and 0 <= c < size:
                    matrix[row * size + column, row * size + column] += 1.0
                    matrix[row * size + column, r * size + c] -= 1.0
    return matrix


def test_prior_is_the_power_of_the_shifted_laplacian():
    shifted = 0.5 * np.eye(256) + loop_laplacian(16)
    assert np.allclose(PROBLEM.prior.cov.numpy(), np.linalg.inv(shifted @ shifted), atol=1e-10)
    assert PROBLEM.prior.cov.diagonal().sqrt().mean().item() == pytest.approx(0.471, abs=5e-4)
    values = np.linalg.eigvalsh(0.7 * np.eye(49) + loop_laplacian(7))
    assert np.allclose(np.linalg.eigvalsh(TINY.prior.cov.numpy()), np.sort(1.69 * values**-2.5), rtol=1e-9)


def test_joint_draws_have_the_covariance_of_the_model():
    images, observations = TINY.simulate(20000, generator=torch.Generator().manual_seed(5))
    matrix, prior = SMALL.matrix.to_dense(), TINY.prior.cov
    expected = matrix @ prior @ matrix.mT + 0.09 * torch.eye(15, dtype=torch.float64)
    found = observations.mT @ observations / 20000
    scale = expected.diagonal().sqrt()
    assert ((found - expected).abs() / (scale[:, None] * scale)).max() < 5.0 * math.sqrt(2.0 / 20000)
    noise = observations - TINY.forward(images)
    assert abs(noise.std().item() - 0.3) < 5.0 * 0.3 / math.sqrt(2 * noise.numel())
    assert (noise.mT @ images / 20000).abs().max() < 0.03


def test_posterior_is_the_gain_form_of_direct_linear_algebra():
    _, observations = drawn(PROBLEM)
    matrix, prior = PROBLEM.matrix.numpy(), PROBLEM.prior.cov.numpy()
    gain = prior @ matrix.T @ np.linalg.inv(matrix @ prior @ matrix.T + 0.64 * np.eye(256))
    posterior = PROBLEM.posterior(observations)
    assert np.allclose(posterior.mean.numpy(), observations.numpy() @ gain.T, atol=1e-10)
    assert np.allclose(posterior.cov[1].numpy(), prior - gain @ matrix @ prior, atol=1e-10)
    assert posterior.sample(2, generator=torch.Generator().manual_seed(0)).shape == (3, 2, 256)


@pytest.mark.parametrize("problem", [TINY, PROBLEM], ids=["tiny", "paper"])
def test_scores_are_gradients_of_log_densities(problem):
    images, observations = drawn(problem)
    points = images[:, None].expand(-1, 2, -1).clone().requires_grad_(True)
    likelihood = problem.log_likelihood(points, observations)
    (by_autograd,) = torch.autograd.grad(likelihood.sum(), points)
    exact = points.detach()
    assert torch.allclose(problem.likelihood_score(exact, observations), by_autograd, atol=1e-9)
    # and the posterior's score, from likelihood and prior, is that of the solved posterior
    assert torch.allclose(problem.score(exact, observations), problem.posterior(observations).score(exact), atol=1e-8)


def test_likelihood_is_normalised():
    images, observations = drawn(TINY)
    residual = (observations - TINY.forward(images)).numpy()
    expected = [
        sum(math.log(math.exp(-0.5 * (r / 0.3) ** 2) / (0.3 * math.sqrt(2 * math.pi))) for r in row) for row in residual
    ]
    assert np.allclose(TINY.log_likelihood(images[:, None], observations)[:, 0].numpy(), expected, atol=1e-10)


def test_informed_subspace_is_that_of_the_paper():
    spectrum = PROBLEM.informed.spectrum
    assert [round(v, 4) for v in spectrum[:7].tolist()] == [26.6296, 10.1756, 7.5073, 5.5009, 4.2806, 2.7287, 2.6846]
    assert (spectrum.sum() ** 2 / spectrum.square().sum()).item() == pytest.approx(6.825, abs=5e-4)
    assert PROBLEM.informed.rank == 7


def test_a_wedge_of_75_degrees_in_all_would_have_rank_six():
    narrow = tomography(RayProjector(size=16, angles=16, detectors=16, steps=32, half_range=37.5))
    assert narrow.informed.rank == 6


@pytest.mark.parametrize("problem", [TINY, PROBLEM], ids=["tiny", "paper"])
def test_latent_posterior_is_the_posterior_of_the_features(problem):
    _, observations = drawn(problem)
    push = problem.informed.chart.inverse_root
    image, latent = problem.posterior(observations), problem.latent_posterior(observations)
    assert torch.allclose(latent.mean, image.mean @ push.mT, atol=1e-9)
    assert torch.allclose(latent.cov, push @ image.cov @ push.mT, atol=1e-9)


def test_resolved_spread_is_that_of_lifted_draws_and_a_part_of_the_whole():
    _, observations = drawn(PROBLEM, 1)
    draws = PROBLEM.latent_posterior(observations[0]).sample(20000, generator=torch.Generator().manual_seed(6))
    spread = PROBLEM.informed.lift(draws).std(0)
    assert (spread / PROBLEM.resolved_std - 1.0).abs().max() < 5.0 / math.sqrt(40000)
    whole = PROBLEM.posterior_cov.diagonal().sqrt()
    assert (PROBLEM.resolved_std < whole).all()
    assert PROBLEM.resolved_std.mean().item() == pytest.approx(0.104, abs=5e-4)
    assert whole.mean().item() == pytest.approx(0.343, abs=5e-4)


def test_toy_of_the_bandwidth_table_is_this_latent_posterior():
    toy = tomography_latent()
    assert torch.equal(toy.reference().cov, PROBLEM.latent_cov)
    assert f"{toy.bandwidth:.4f}" == "0.3460"


def test_bad_problems_are_named():
    with pytest.raises(ValueError, match="`noise`"):
        tomography(noise=0.0)
    with pytest.raises(ValueError, match="`observation`"):
        TINY.log_likelihood(torch.zeros(1, 49), torch.zeros(14))
