import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from strategies import few, rng_seeds, samples, some

from amsip import Gaussian, Samples, Whitening, _linalg, draw_seeds


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


@some
@given(samples())
def test_moments_are_weighted_sums(reference):
    mean, cov = reference.moments()
    expected = oracles.weighted_moments(reference.atoms.numpy(), reference.normalised_weights.numpy())
    assert np.allclose(mean, expected[0], rtol=1e-12, atol=1e-13)
    assert np.allclose(cov, expected[1], rtol=1e-11, atol=1e-13)


@few
@given(samples(low=2))
def test_moments_in_pieces_are_the_same(reference):
    whole = reference.moments()
    before = _linalg.LEAST_COLUMNS, _linalg.BLOCK_ENTRIES
    try:
        _linalg.LEAST_COLUMNS, _linalg.BLOCK_ENTRIES = 1, 7
        pieces = Samples(reference.atoms, reference.weights).moments()
    finally:
        _linalg.LEAST_COLUMNS, _linalg.BLOCK_ENTRIES = before
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(whole, pieces, strict=True))


def test_moments_of_single_precision_draws_are_summed_in_double():
    atoms = (normal(200_000, 1) * 1e-2 + 1000.0).float()
    mean, cov = Samples(atoms).moments()
    assert mean.dtype == torch.float32
    assert cov.item() == pytest.approx(atoms.double().var(correction=0).item(), rel=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_moments_scale(scale):
    atoms = normal(50, 3)
    plain, scaled = Samples(atoms).moments(), Samples(scale * atoms).moments()
    assert torch.allclose(scale * plain[0], scaled[0], rtol=1e-12)
    assert torch.allclose(scale**2 * plain[1], scaled[1], rtol=1e-12)


@few
@given(samples(), rng_seeds)
def test_the_total_of_the_weights_does_not_matter(reference, rng_seed):
    weights = reference.normalised_weights
    scaled = Samples(reference.atoms, 37.0 * weights)
    assert torch.allclose(scaled.normalised_weights, weights, rtol=1e-14)


def test_seeds_are_distinct_rows_while_they_last():
    atoms = torch.arange(11.0)[:, None]
    seeds = draw_seeds(Samples(atoms), 11, generator=torch.Generator().manual_seed(0))
    assert sorted(seeds[:, 0].tolist()) == atoms[:, 0].tolist()
    assert draw_seeds(Samples(atoms), 13, generator=torch.Generator().manual_seed(0)).shape == (13, 1)


def test_weightless_atoms_are_never_drawn():
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0, 3.0])
    reference = Samples(torch.arange(5.0)[:, None], weights)
    generator = torch.Generator().manual_seed(0)
    for draws in (reference.sample(100, generator=generator), draw_seeds(reference, 3, generator=generator)):
        assert set(draws[:, 0].tolist()) == {1.0, 3.0, 4.0}


def test_draws_follow_the_weights():
    reference = Samples(torch.tensor([[0.0], [1.0]]), torch.tensor([1.0, 4.0]))
    draws = reference.sample(10_000, generator=torch.Generator().manual_seed(0))
    assert abs(draws.mean().item() - 0.8) < 5 * (0.16 / 10_000) ** 0.5


def test_queries_draw_from_their_own_rows():
    atoms = torch.arange(3.0)[:, None, None] * 100 + torch.arange(7.0)[:, None]
    for draws in (Samples(atoms).sample(5), draw_seeds(Samples(atoms), 5)):
        assert torch.equal((draws // 100)[..., 0], torch.arange(3.0)[:, None].expand(3, 5))


def test_the_score_follows_the_chart():
    posterior = Gaussian(torch.zeros(2).double(), torch.tensor([[2.0, 0.3], [0.3, 0.5]]).double())
    draws = posterior.sample(30, generator=torch.Generator().manual_seed(0))
    chart = Whitening.of_samples(draws)
    moved, u = Samples(draws, score=posterior.score).whiten(chart), normal(4, 2)
    assert torch.allclose(moved.score(u), posterior.whiten(chart).score(u), rtol=1e-8)
    assert Samples(draws).whiten(chart).score is None


def test_arrays_lists_and_integers_become_draws():
    for atoms in (np.arange(6).reshape(3, 2), [[0, 1], [2, 3], [4, 5]], torch.arange(6).reshape(3, 2)):
        reference = Samples(atoms)
        assert reference.atoms.dtype == torch.float64
        assert reference.atoms[2, 1].item() == 5.0
    assert Samples(np.zeros((2, 1), dtype=np.float32)).atoms.dtype == torch.float32


def test_the_users_array_is_left_as_it_was():
    array, weights = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0])
    reference = Samples(array, weights)
    reference.moments()
    draw_seeds(reference, 2)
    assert array.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert weights.tolist() == [1.0, 2.0, 3.0]
