"""The default end to end: a promise on every emission, and a training family that never saw a benchmark."""

import inspect

import pytest
import torch

from amsip import Samples, quadrature, resolution_dial
from amsip.defaults import default_kernel
from amsip.discrepancy import loss
from amsip.problems import toys
from amsip.seeds import draw_seeds
from amsip.training import universal
from amsip.weights import optimal_weights

DTYPE = torch.float64


def adversarial(kind: int, q: int, n: int, d: int, generator: torch.Generator) -> torch.Tensor:
    """Pools that users do have: plain, duplicated, two atoms, collinear, tiny, huge, heavy-tailed, constant."""
    x = torch.randn(q, n, d, generator=generator, dtype=DTYPE)
    tails = torch.randn(q, n, 1, generator=generator, dtype=DTYPE).abs().clamp_min(1e-4)
    return (
        x,
        x[:, : max(2, n // 10)].repeat(1, 12, 1)[:, :n],
        torch.where(x[..., :1] > 0, x[:, :1], x[:, 1:2]),
        x[..., :1] * x[:, :1],
        1e-6 * x + 3.0,
        1e6 * x * torch.tensor([1e-6, *[1.0] * (d - 1)], dtype=DTYPE),
        x / tails,
        torch.cat([x[..., :1], torch.full_like(x[..., 1:], 7.0)], -1),
    )[kind]


def excess(draws: torch.Tensor, m: int, number: int) -> torch.Tensor:
    """How far the emission is above its reweighted seeds, relative to the size of the terms compared."""
    rule = quadrature(draws, m, generator=torch.Generator().manual_seed(number))
    reference = Samples(draws)
    kernel = default_kernel(reference)
    local, chart = reference.whiten(kernel.whitening), kernel.whitening
    embedding = local.embed(kernel.kernel)
    seeds = chart.forward(draw_seeds(reference, m, generator=torch.Generator().manual_seed(number)))
    nodes = chart.forward(rule.nodes)
    gram, mean = kernel.kernel.gram(nodes), embedding.mean(nodes)
    floor = loss(kernel.kernel.gram(seeds), embedding.mean(seeds), optimal_weights(seeds, embedding))
    size = (rule.weights.abs() * mean.abs()).sum(-1) + floor.abs()
    return (loss(gram, mean, rule.weights) - floor) / size


@pytest.mark.filterwarnings("ignore::amsip.wild.WildDraws")
@pytest.mark.parametrize(("batches", "queries"), [(8, 5), pytest.param(100, 50, marks=pytest.mark.slow)])
def test_no_emission_is_worse_than_its_reweighted_seeds(batches, queries):
    generator = torch.Generator().manual_seed(batches)
    for number in range(batches):
        d = 1 + int(torch.randint(8, (), generator=generator))
        n = 5 + int(torch.randint(60, (), generator=generator))
        m = 1 + int(torch.randint(40, (), generator=generator))
        above = excess(adversarial(number % 8, queries, n, d, generator), m, number)
        assert torch.isfinite(above).all(), f"kind {number % 8}, n {n}, d {d}, m {m}"
        assert above.max() < 1e-8, f"kind {number % 8}, n {n}, d {d}, m {m}"


def test_default_makes_mean_and_covariance_exact():
    draws = torch.randn(3, 500, 4, generator=torch.Generator().manual_seed(0), dtype=DTYPE).mul(0.5).exp()
    rule = quadrature(draws, 32, generator=torch.Generator().manual_seed(1))
    assert (rule.mean() - draws.mean(1)).abs().max() < 1e-9
    centred = draws - draws.mean(1, keepdim=True)
    assert (rule.cov() - centred.mT @ centred / 500).abs().max() < 1e-8


def test_default_beats_reweighting_by_far_on_a_posterior_it_never_saw():
    x = torch.randn(1500, 3, generator=torch.Generator().manual_seed(2), dtype=DTYPE)
    draws = torch.stack([x[:, 0], x[:, 1] + x[:, 0] ** 2, x[:, 2].exp()], -1)
    scores = [
        quadrature(draws, 24, generator=torch.Generator().manual_seed(3), **settings).mmd2
        for settings in ({}, {"node_map": None})
    ]
    assert scores[0] < 0.1 * scores[1]


def test_single_precision_stays_single_and_close():
    draws = torch.randn(800, 3, generator=torch.Generator().manual_seed(4), dtype=DTYPE)
    single = quadrature(draws.float(), 16, generator=torch.Generator().manual_seed(5))
    assert single.nodes.dtype == single.weights.dtype == torch.float32
    assert (single.mean() - draws.mean(0)).abs().max() < 1e-5


def test_the_dial_starts_from_nested_seeds():
    draws = torch.randn(300, 2, generator=torch.Generator().manual_seed(6), dtype=DTYPE)
    rules = resolution_dial(draws, [3, 9], node_map=None, generator=torch.Generator().manual_seed(7))
    assert (rules[3].nodes - rules[9].nodes[:3]).abs().max() < 1e-12
    assert set(rules) == {3, 9}


def test_training_family_knows_no_benchmark():
    source = inspect.getsource(universal)
    banned = ["problems", "sbibm", "slcp", "lotka", "moons", "glm", "sir_", "darcy", "tomography", "banana"]
    assert [word for word in banned if word in source.lower()] == []
    assert not {name for name in vars(universal) if name in vars(toys)} & {"banana", "five_modes", "gaussian_toy"}


def test_training_family_is_wide_and_whitened():
    generator, tasks = torch.Generator().manual_seed(8), universal.UniversalTasks()
    drawn = [tasks(generator) for _ in range(60)]
    assert {task.embedding.dim for task in drawn} >= {1, 2, 10}
    assert min(task.seeds.shape[-2] for task in drawn) <= 4
    assert max(task.seeds.shape[-2] for task in drawn) >= 96
    whitened = [(t.embedding.moments[1] - torch.eye(t.embedding.dim)).abs().max() < 1e-6 for t in drawn]
    assert 0.5 < sum(whitened) / len(whitened) < 1.0
