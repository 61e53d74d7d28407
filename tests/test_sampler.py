import pytest
import torch

from amsip.kernels import SquaredExponential
from amsip.references.sampler import Sampler
from amsip.whitening import Whitening


def normal(n, generator):
    return torch.randn(n, 3, generator=generator, dtype=torch.float64)


def faulty(share: float):
    """Draws of two queries in which a share of rows is infinite, not a number, or far away."""

    def draw(n, generator):
        x = torch.randn(2, n, 3, generator=generator, dtype=torch.float64)
        bad = torch.rand(2, n, generator=generator) < share
        kind = torch.tensor([torch.inf, torch.nan, 1e9], dtype=torch.float64)
        return torch.where(bad[..., None] & torch.eye(3, dtype=torch.bool)[0], kind[torch.arange(n) % 3][:, None], x)

    return draw


def seeded(rng_seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(rng_seed)


def test_bad_rows_are_replaced_and_their_share_reported():
    flow = Sampler(faulty(0.2), 3, bank=501, limit=0.4, generator=seeded())
    assert flow.bank.atoms.shape == (2, 501, 3)
    assert flow.bank.atoms.abs().max() < 1e4
    assert flow.rejected.shape == (2,)
    assert ((flow.rejected - 0.2).abs() < 0.08).all()


def test_good_rows_keep_their_order_and_nothing_else_changes():
    def draw(n, generator):
        x = torch.arange(float(n))[:, None].expand(n, 2).clone()
        x[1::3] = torch.nan
        return x

    flow = Sampler(draw, 2, bank=5, limit=0.5)
    assert flow.bank.atoms[:, 0].tolist() == [0.0, 2.0, 3.0, 0.0, 0.0]


def test_a_sampler_above_its_limit_is_refused():
    with pytest.raises(ValueError, match=r"more than `limit` = 10.0%"):
        Sampler(faulty(0.3), 3, generator=seeded())


def test_a_sampler_that_never_draws_well_is_refused_after_its_rounds():
    with pytest.raises(ValueError, match="0 of 10 after every round"):
        Sampler(lambda n, generator: torch.full((n, 1), torch.nan), 1, bank=10, limit=1.0)


def test_wrong_shape_is_named():
    with pytest.raises(ValueError, match="asked for n = 8 with d = 2"):
        Sampler(normal, 2, bank=8)


def test_the_bank_is_frozen_and_samples_are_fresh():
    flow = Sampler(normal, 3, bank=64, generator=seeded())
    embedding = flow.embed(SquaredExponential(1.0))
    before = embedding.energy
    first, second = flow.sample(5, generator=seeded(1)), flow.sample(5, generator=seeded(2))
    assert not torch.equal(first, second)
    assert torch.equal(flow.sample(5, generator=seeded(1)), first)
    assert torch.equal(flow.embed(SquaredExponential(1.0)).energy, before)
    again = Sampler(normal, 3, bank=64, generator=seeded())
    assert torch.equal(again.bank.atoms, flow.bank.atoms)


def test_whitened_samples_are_the_chart_of_the_samples():
    flow = Sampler(faulty(0.05), 3, bank=400, generator=seeded())
    chart = Whitening.of_moments(*flow.moments())
    white = flow.whiten(chart)
    assert torch.allclose(white.sample(7, generator=seeded(4)), chart.forward(flow.sample(7, generator=seeded(4))))
    assert torch.allclose(white.moments()[1], torch.eye(3, dtype=torch.float64).expand(2, 3, 3), atol=1e-6)
    twice = white.whiten(Whitening.of_moments(*white.moments()))
    assert twice.sample(2, generator=seeded()).shape == (2, 2, 3)
