"""Limited-angle tomography with a flow as posterior: the phantoms, the encoding, the density, the shipped weights."""

import math
import shutil

import numpy as np
import pytest
import torch

from amsip import pretrained
from amsip.pretrained import available_maps, load_card
from amsip.problems.limited_angle import NOISE, LimitedAngle
from amsip.problems.phantoms import phantoms, rasterised
from amsip.problems.principal import Principal
from amsip.problems.projector import RayProjector

pytest.importorskip("zuko")

from amsip.problems.conditional_flow import ConditionalFlow
from amsip.problems.flow_tomography import TEST_SEED, FlowTomography, flow_tomography, save_flow
from amsip.problems.flow_training import MirroredPairs, train_flow

DTYPE = torch.float64
SHIPPED = pretrained.SHIPPED / "flow_tomography.safetensors"


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def small_problem() -> LimitedAngle:
    return LimitedAngle(RayProjector(16, 7, 11, 32, 60.0))


def disturbed_flow(features: int = 4, context: int = 3) -> ConditionalFlow:
    """A small flow in float64 whose splines are not the identity and whose linear part is not trivial."""
    flow = ConditionalFlow(features, context, transforms=2, width=8, bins=4, generator=seeded()).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=seeded(parameter.numel()), dtype=DTYPE)
        flow.slope.copy_(torch.randn(features, context, generator=seeded(1)))
        flow.offset.copy_(torch.randn(features, generator=seeded(2)))
        flow.root.copy_(torch.eye(features) + torch.randn(features, features, generator=seeded(3)).tril())
    return flow


def test_an_ellipse_is_what_a_loop_draws():
    """Catches an angle of the wrong sign, axes swapped, and x taken for y."""
    ellipses = torch.tensor([[[0.7, 0.3, -0.2, 0.6, 0.15, 0.5], [-0.4, -0.1, 0.25, 0.3, 0.45, -1.1]]], dtype=DTYPE)
    size = 23
    axis = np.linspace(-1.0, 1.0, size)
    expected = np.zeros((size, size))
    for value, x0, y0, first, second, angle in ellipses[0].numpy():
        for row in range(size):
            for column in range(size):
                across, along = axis[column] - x0, axis[row] - y0
                u = across * math.cos(angle) + along * math.sin(angle)
                v = along * math.cos(angle) - across * math.sin(angle)
                expected[row, column] += value * ((u / first) ** 2 + (v / second) ** 2 <= 1.0)
    assert np.allclose(rasterised(ellipses, size)[0].numpy(), expected)
    assert expected.min() < 0 < expected.max()


def test_phantoms_have_a_skull_and_stay_in_range():
    images = phantoms(200, generator=seeded())
    assert images.min() == 0.0
    assert images.max() <= 1.1
    assert bool((images[:, 0] == 0).all() and (images[:, :, 0] == 0).all())
    # the skull reaches 0.80 to 0.92 along y and 0.62 to 0.74 along x, tilted by at most 12 degrees
    height = (images.amax(2) > 0.5).sum(1) * 2.0 / 63.0
    assert 1.5 < height.min() < height.max() < 1.9
    assert torch.equal(images[:5], phantoms(200, generator=seeded())[:5])


def test_principal_directions_are_those_of_the_mirrored_sample():
    images = torch.randn(30, 16, generator=seeded(), dtype=DTYPE) @ torch.randn(
        16, 16, generator=seeded(1), dtype=DTYPE
    )
    found = Principal.of(images, 6)
    stack = images.numpy().reshape(-1, 4, 4)
    everything = np.concatenate([stack, stack[:, :, ::-1], stack[:, ::-1], stack[:, ::-1, ::-1]]).reshape(-1, 16)
    centred = everything - everything.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    assert np.allclose(found.mean.numpy(), everything.mean(0))
    assert np.allclose(found.variance.numpy(), values[::-1][:6])
    assert np.allclose(np.abs(np.sum(vectors[:, ::-1][:, :6] * found.directions.numpy().T, 0)), 1.0)
    assert math.isclose(found.retained.item(), values[::-1][:6].sum() / values.sum())
    for axis, signs in ((-1, found.signs[0]), (-2, found.signs[1])):
        mirrored = images.unflatten(-1, (4, 4)).flip(axis).flatten(1)
        assert torch.allclose(found.coefficients(mirrored), signs * found.coefficients(images))


def test_the_encoding_is_the_adjoint_of_ramp_filtered_readings():
    problem = small_problem()
    readings = torch.randn(2, problem.projector.readings, generator=seeded(), dtype=DTYPE)
    detectors = problem.projector.detectors
    padded = np.zeros((2, 7, 2 * detectors))
    padded[..., :detectors] = readings.numpy().reshape(2, 7, detectors)
    ramp = np.abs(np.fft.fftfreq(2 * detectors))
    filtered = np.fft.ifft(np.fft.fft(padded) * ramp).real[..., :detectors].reshape(2, -1)
    expected = problem.projector.backproject(torch.from_numpy(filtered))
    assert torch.allclose(problem.encode(readings), expected, rtol=1e-5, atol=1e-6)


def test_readings_carry_noise_of_one_hundredth_of_their_own_size():
    problem = small_problem()
    images, observations, noise = problem.simulate(100, generator=seeded())
    clean = problem.projector.project(images.to(DTYPE))
    rms = clean.square().mean(-1).sqrt()
    assert torch.allclose(noise.to(DTYPE), NOISE * rms, rtol=1e-4)
    residuals = (observations - clean) / noise[:, None]
    assert abs(residuals.std().item() - 1.0) < 5.0 / math.sqrt(2.0 * residuals.numel())


def test_the_likelihood_score_is_its_gradient():
    problem = small_problem()
    images, observations, noise = (part.to(DTYPE) for part in problem.simulate(3, generator=seeded()))
    start = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(problem.log_likelihood(start, observations, noise).sum(), start)
    assert torch.allclose(problem.likelihood_score(images, observations, noise), gradient)


def test_mirroring_a_phantom_mirrors_its_encoding():
    """The symmetry that training relies on: left-right and up-down."""
    problem = small_problem()
    image = problem.prior(1, generator=seeded()).to(DTYPE)
    plain = problem.encode(problem.forward(image)).unflatten(-1, (16, 16))
    for axis in (-1, -2):
        mirrored = image.unflatten(-1, (16, 16)).flip(axis).flatten(1)
        assert torch.allclose(
            problem.encode(problem.forward(mirrored)).unflatten(-1, (16, 16)), plain.flip(axis), atol=1e-5
        )


def test_before_training_the_flow_is_the_gaussian_of_the_regression():
    context = torch.randn(50, 3, generator=seeded(), dtype=DTYPE)
    noise = torch.randn(50, 4, generator=seeded(1), dtype=DTYPE)
    values = torch.sin(context).repeat(1, 2)[:, :4] + noise @ torch.randn(4, 4, generator=seeded(2), dtype=DTYPE)
    flow = ConditionalFlow(4, 3, width=8).double()
    flow.regress(values, context)
    rows = np.column_stack([context.numpy(), np.ones(50)])
    found = np.linalg.lstsq(rows, values.numpy(), rcond=None)[0]
    residuals = values.numpy() - rows @ found
    law = torch.distributions.MultivariateNormal(
        torch.from_numpy(rows @ found), torch.from_numpy(residuals.T @ residuals / 50)
    )
    assert torch.allclose(flow.log_prob(values[:, None], context)[:, 0], law.log_prob(values))


def test_the_density_is_that_of_the_map_by_slogdet():
    flow = disturbed_flow()
    context = torch.randn(3, generator=seeded(4), dtype=DTYPE)
    noise = torch.randn(4, generator=seeded(5), dtype=DTYPE)

    def carried(xi: torch.Tensor) -> torch.Tensor:
        return flow.flow(context).transform.inv(xi) @ flow.root.mT + context @ flow.slope.mT + flow.offset

    jacobian = torch.autograd.functional.jacobian(carried, noise)
    expected = -0.5 * (noise @ noise + 4.0 * math.log(2.0 * math.pi)) - torch.linalg.slogdet(jacobian)[1]
    assert torch.allclose(flow.log_prob(carried(noise)[None], context)[0], expected)


def test_scores_are_gradients_and_leave_no_trace():
    flow = disturbed_flow()
    context = torch.randn(2, 3, generator=seeded(4), dtype=DTYPE)
    points = flow.sample(5, context, generator=seeded(6))
    found = flow.score(points, context)
    step = 1e-6
    for axis in range(4):
        move = torch.zeros(4, dtype=DTYPE)
        move[axis] = step
        slope = (flow.log_prob(points + move, context) - flow.log_prob(points - move, context)) / (2.0 * step)
        assert torch.allclose(found[..., axis], slope, rtol=1e-4, atol=1e-5)
    assert not found.requires_grad
    assert not points.requires_grad
    assert all(parameter.grad is None for parameter in flow.parameters())


def test_draws_follow_the_generator_alone_and_one_query_is_as_many():
    flow = disturbed_flow()
    context = torch.randn(1, 3, generator=seeded(4), dtype=DTYPE)
    before = torch.random.get_rng_state()
    first, second = (flow.sample(9000, context, generator=seeded(7)) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first, second)
    assert torch.allclose(first[0], flow.sample(9000, context[0], generator=seeded(7)))


def test_draws_have_the_density_they_are_given():
    """E exp(log p - log q) is one for a Gaussian q wide enough to be integrated against."""
    flow = disturbed_flow(2)
    context = torch.zeros(3, dtype=DTYPE)
    draws = flow.sample(4000, context, generator=seeded(8))
    wide = torch.distributions.MultivariateNormal(draws.mean(0), 4.0 * torch.cov(draws.mT))
    points = wide.mean + torch.randn(20000, 2, generator=seeded(9), dtype=DTYPE) @ wide.scale_tril.mT
    with torch.no_grad():
        ratio = (flow.log_prob(points, context) - wide.log_prob(points)).exp()
    assert abs(ratio.mean() - 1.0) < 5.0 * ratio.std() / math.sqrt(len(ratio))
    moved = (ratio[:, None] * points).mean(0) - draws.mean(0)
    error = (ratio[:, None] * points).std(0) / math.sqrt(len(ratio)) + draws.std(0) / math.sqrt(len(draws))
    assert bool((moved.abs() < 5.0 * error).all())


def small_trained() -> FlowTomography:
    images = torch.randn(200, 16, generator=seeded()) @ torch.randn(16, 16, generator=seeded(1))
    parts = Principal.of(images, 4), Principal.of(torch.randn(200, 16, generator=seeded(2)), 3)
    spread = 0.1 + torch.rand(16, generator=seeded(3))
    return FlowTomography(small_problem(), *parts, spread, disturbed_flow().float())


def test_the_complement_has_the_stated_variance_and_no_coefficients():
    trained = small_trained()
    coefficients = torch.randn(20000, 4, generator=seeded(4))
    whole = trained.complete(coefficients, generator=seeded(5))
    assert torch.allclose(trained.images.coefficients(whole), coefficients, atol=1e-4)
    outside = np.eye(16) - trained.images.directions.double().numpy().T @ trained.images.directions.double().numpy()
    expected = np.diag(outside @ np.diag(trained.spread.double().numpy() ** 2) @ outside)
    assert np.allclose(trained.complement_variance().numpy(), expected, atol=1e-5)
    added = (whole - trained.images.images(coefficients)).var(0).numpy()
    assert np.all(np.abs(added / expected - 1.0) < 5.0 * math.sqrt(2.0 / 20000) + 1e-3)


def test_weights_survive_the_disk(tmp_path):
    trained = small_trained()
    save_flow(trained, tmp_path / "flow.safetensors", about={"command": "none"})
    again = flow_tomography(tmp_path / "flow.safetensors")
    encodings = torch.randn(2, 16, generator=seeded(6))
    first = trained.posterior(encodings, bank=20, generator=seeded(7)).bank.atoms
    assert torch.equal(again.posterior(encodings, bank=20, generator=seeded(7)).bank.atoms, first)
    assert "flow" not in available_maps()


def test_mirrored_pairs_change_the_signs_of_both_sides_together():
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    values = torch.tensor([[2.0, 3.0]])
    tasks = MirroredPairs(values, values, signs, 400)
    task = tasks(seeded())
    assert torch.equal(task.seeds, task.observation)
    assert sorted({tuple(row) for row in task.seeds.tolist()}) == [(-2.0, -3.0), (-2.0, 3.0), (2.0, -3.0), (2.0, 3.0)]
    assert sorted(map(tuple, tasks.every_mirror()[0].tolist())) == [(-2.0, -3.0), (-2.0, 3.0), (2.0, -3.0), (2.0, 3.0)]


@pytest.mark.slow
def test_training_continues_where_it_was_cut(tmp_path):
    """The weights are those of a run that was not cut, up to the rounding of the regression done anew."""
    settings = (
        "pairs = 256\nheld_out = 64\nbatch = 16\n[flow]\nfeatures = 5\ncontext = 4\nwidth = 8\n[fit]\nlr = 1e-2\n"
    )

    def trained(name: str, steps: int) -> dict[str, torch.Tensor]:
        file = tmp_path / f"{name}.toml"
        file.write_text(f'output = "{(tmp_path / name).as_posix()}.safetensors"\n{settings}steps = {steps}\n')
        train_flow(file)
        return dict(flow_tomography(tmp_path / f"{name}.safetensors").flow.named_parameters())

    whole = trained("whole", 20)
    shutil.copy(tmp_path / "whole.pairs", tmp_path / "cut.pairs")
    early = trained("cut", 10)
    late = trained("cut", 20)
    for name, value in whole.items():
        assert torch.allclose(late[name], value, atol=1e-4)
    assert any(not torch.allclose(early[name], value, atol=1e-3) for name, value in whole.items())
    scores = load_card(tmp_path / "cut.safetensors").about["held_out_negative_log_likelihood"]
    assert scores["flow"] < scores["linear_gaussian"]


@pytest.mark.skipif(not SHIPPED.exists(), reason="no weights are shipped yet")
class TestShipped:
    def test_they_are_small_and_say_how_to_make_them_again(self):
        card = load_card("flow_tomography")
        assert SHIPPED.stat().st_size < 10_000_000
        assert card.about["command"] == "amsip train configs/flow_tomography.toml"
        assert card.parameters == sum(p.numel() for p in flow_tomography().flow.parameters())

    def test_they_beat_the_regression_they_started_from_on_new_observations(self):
        trained = flow_tomography()
        images, encodings = trained.problem.pairs(128, generator=seeded(TEST_SEED + 1))
        coefficients, context = trained.images.coefficients(images), trained.context(encodings)
        plain = ConditionalFlow(**trained.flow.settings)
        plain.load_state_dict(
            {**plain.state_dict(), **{k: getattr(trained.flow, k) for k in ("slope", "offset", "root")}}
        )
        with torch.no_grad():
            gain = (plain(coefficients, context) - trained.flow(coefficients, context))[:, 0]
        assert gain.mean() > 5.0 * gain.std() / math.sqrt(len(gain))

    def test_their_shape_moves_with_the_observation(self):
        """Each observation's 32 leading latent variances, against what the sampling noise of equal ones would give."""
        trained = flow_tomography()
        encodings = trained.problem.pairs(256, generator=seeded(TEST_SEED + 1))[1][:6]
        posterior = trained.posterior(encodings, bank=512, generator=seeded(1))
        assert posterior.rejected.max() < 0.01
        cov = posterior.moments()[1][..., :32, :32].to(DTYPE)
        volumes = torch.linalg.slogdet(cov)[1]
        # the log-determinant of a sample covariance of n Gaussian rows has a variance of about 2 d / n
        noise = math.sqrt(2.0 * 32 / (512 - 32))
        assert volumes.max() - volumes.min() > 10.0 * noise
