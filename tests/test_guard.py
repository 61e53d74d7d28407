import numpy as np
import pytest
import torch
from hypothesis import given
from strategies import few, kernels, rng_seeds, samples

from amsip import Gaussian, Samples, SquaredExponential, mmd2, optimal_weights
from amsip.discrepancy import loss
from amsip.guard import Candidate, finite_or_seeds, guarded, weighed
from amsip.rules import EMISSIONS
from amsip.weights import uniform_weights


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def scored(z, w, embedding):
    exact = z.double()
    return Candidate(z, w, loss(embedding.kernel.gram(exact), embedding.mean(exact), w.double()))


@few
@given(samples(low=2, dim=2), kernels(), rng_seeds)
def test_the_kept_candidate_is_the_best_of_every_query(reference, kernel, rng_seed):
    embedding = reference.embed(kernel)
    candidates = [(normal(3, 4, 2, rng_seed=rng_seed + i), normal(3, 4, rng_seed=rng_seed + 9 + i)) for i in range(3)]
    rule = guarded([scored(z, w, embedding) for z, w in candidates], embedding)
    scores = torch.stack([mmd2(z, w, embedding) for z, w in candidates])
    slack = 1e-9 * (1.0 + scores.abs().max())
    assert bool((mmd2(rule.nodes, rule.weights, embedding) <= scores.amin(0) + slack).all())
    for q, kept in enumerate(rule.emission.tolist()):
        assert torch.equal(rule.nodes[q], candidates[kept][0][q])
        assert torch.equal(rule.weights[q], candidates[kept][1][q])


def test_queries_are_kept_apart():
    embedding = Gaussian(torch.zeros(2).double(), torch.eye(2).double()).embed(SquaredExponential(1.0))
    near, far = normal(5, 2), normal(5, 2) + 100.0
    first, second = torch.stack([near, far]), torch.stack([far, near])
    rule = guarded([scored(z, uniform_weights(z), embedding) for z in (first, second)], embedding)
    assert rule.emission.tolist() == [0, 1]
    assert torch.equal(rule.nodes, torch.stack([near, near]))


def test_ties_go_to_the_simplest_emission():
    embedding = Samples(normal(9, 2)).embed(SquaredExponential(1.0))
    z = normal(4, 2, rng_seed=1)
    rule = guarded([weighed(z, embedding)[0]] * 3, embedding)
    assert EMISSIONS[rule.emission.item()] == "equal-weight seeds"


def test_a_score_that_is_not_a_number_never_wins():
    embedding = Samples(normal(9, 2)).embed(SquaredExponential(1.0))
    z = normal(4, 2, rng_seed=1)
    broken = torch.full_like(z, torch.nan)
    rule = guarded([scored(broken, uniform_weights(z), embedding), weighed(z, embedding)[0]], embedding)
    assert rule.emission.item() == 1


def test_nodes_that_are_not_finite_are_replaced_in_their_query_alone():
    seeds, moved = normal(3, 4, 2), normal(3, 4, 2, rng_seed=1)
    moved[1, 2, 0] = torch.inf
    kept = finite_or_seeds(moved, seeds)
    assert torch.equal(kept[1], seeds[1])
    assert torch.equal(kept[::2], moved[::2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_are_told_apart_in_double(dtype):
    # both discrepancies are far below the rounding of the single-precision terms that make them
    draws = normal(400, 1).to(dtype)
    embedding = Samples(draws).embed(SquaredExponential(3.0))
    z = draws[:6]
    w = optimal_weights(z.double(), embedding)
    worse = w + 3e-4 * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]).double()
    rule = guarded([scored(z.double(), worse, embedding), scored(z.double(), w, embedding)], embedding)
    assert rule.emission.item() == 1


def test_one_reading_gives_the_equal_and_the_optimal_weights():
    embedding = Samples(normal(9, 2)).embed(SquaredExponential(1.0))
    z = normal(3, 4, 2, rng_seed=1)
    equal, optimal = weighed(z, embedding, total=2.0)
    assert torch.equal(equal.weights, 2.0 * uniform_weights(z))
    assert torch.allclose(optimal.weights, optimal_weights(z, embedding, total=2.0), atol=1e-12)
    for candidate in (equal, optimal):
        assert torch.allclose(candidate.loss + embedding.energy, mmd2(z, candidate.weights, embedding), atol=1e-12)
