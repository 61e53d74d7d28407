import pytest
import torch

from amsip import Gaussian, SquaredExponential, mmd2, optimal_weights
from amsip.maps.meanshift import MeanShift
from amsip.maps.readings import FreshSamples, SmoothedScore
from amsip.maps.refine import RefineStep, evaluations_per_step, gram_rank, refine


def posterior() -> Gaussian:
    cov = torch.tensor([[0.141846, -0.035303], [-0.035303, 0.184923]], dtype=torch.float64)
    return Gaussian(torch.zeros(2, dtype=torch.float64), cov)


def cold(*shape: int) -> torch.Tensor:
    return 2.0 * torch.randn(*shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def followed(reading, steps: int = 30, start=None, jitter: float = 1e-10):
    trace: list[RefineStep] = []
    embedding = posterior().embed(SquaredExponential(0.4))
    extra = {} if reading is None else {"reading": reading}
    start = cold(3, 8) if start is None else start
    rule = refine(start, embedding, MeanShift(steps=steps, damping=0.5, jitter=jitter, **extra), callback=trace.append)
    return rule, trace, embedding


@pytest.mark.parametrize("resource", ["embedding", "samples", "score"])
def test_every_resource_descends_from_a_cold_start(resource):
    reading = {
        "embedding": None,
        "samples": FreshSamples(posterior(), 2000, generator()),
        "score": SmoothedScore(posterior().log_prob, posterior().score, 256, generator()),
    }[resource]
    # an estimated reading is noisy, and the inverse Gram makes noise of close nodes loud
    jitter = 1e-10 if reading is None else 1e-3
    rule, trace, embedding = followed(reading, jitter=jitter)
    assert len(trace) == 31
    assert (trace[-1].mmd2 < 0.3 * trace[0].mmd2).all()
    torch.testing.assert_close(rule.mmd2, trace[-1].mmd2)
    torch.testing.assert_close(rule.weights, optimal_weights(rule.nodes, embedding, jitter=jitter))
    torch.testing.assert_close(trace[-1].ess, rule.ess)


def test_the_trace_is_of_the_same_path_as_the_map():
    rule, trace, embedding = followed(None, steps=4)
    nodes = MeanShift(steps=4, damping=0.5)(cold(3, 8), embedding)
    torch.testing.assert_close(rule.nodes, nodes)
    torch.testing.assert_close(trace[0].mmd2, mmd2(cold(3, 8), optimal_weights(cold(3, 8), embedding), embedding))


def test_score_evaluations_are_counted_per_query():
    reading = SmoothedScore(posterior().log_prob, posterior().score, 11, generator())
    _, trace, _ = followed(reading, steps=3)
    assert [step.score_evaluations for step in trace] == [0, 88, 176, 264]
    assert evaluations_per_step(MeanShift(reading=FreshSamples(posterior(), 5)), 8) == 0


def test_warm_is_below_cold_at_every_step():
    settled = followed(None, steps=60)[0].nodes
    warm, chilly = followed(None, 5, settled)[1], followed(None, 5)[1]
    assert all((a.mmd2 < b.mmd2).all() for a, b in zip(warm, chilly, strict=True))


def test_rank_counts_what_stands_out():
    gram = SquaredExponential(1.0).gram(torch.tensor([[0.0], [0.0], [5.0]], dtype=torch.float64))
    assert gram_rank(gram).item() == 2
