import torch

from amsip import Gaussian, Polynomial, Samples, SquaredExponential, Whitened, Whitening
from amsip.references.thinning import thinned


def draws(n, d=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def test_a_thinned_embedding_is_that_of_every_third_atom_with_the_moments_of_all():
    atoms, nodes = draws(35), draws(5)
    kernel = SquaredExponential(1.0) + 0.5 * Polynomial(2, 3.0)
    found = thinned(Samples(atoms).embed(kernel), 11).mean(nodes)
    expected = Samples(atoms[::3]).embed(SquaredExponential(1.0)).mean(nodes)
    expected = expected + 0.5 * Samples(atoms).embed(Polynomial(2, 3.0)).mean(nodes)
    torch.testing.assert_close(found, expected)


def test_it_is_thinned_inside_a_chart_too():
    atoms, nodes = draws(35), draws(5)
    kernel = Whitened(SquaredExponential(1.0), Whitening.of_samples(atoms))
    found = thinned(Samples(atoms).embed(kernel), 11).mean(nodes)
    torch.testing.assert_close(found, Samples(atoms[::3]).embed(kernel).mean(nodes))


def test_few_or_weighted_atoms_and_closed_forms_stay_whole():
    weights = torch.ones(35, dtype=torch.float64)
    weights[0] = 2.0
    kernel = SquaredExponential(1.0)
    gaussian = Gaussian(torch.zeros(3), torch.eye(3))
    for reference, enough in ((Samples(draws(35)), 18), (Samples(draws(35), weights), 5), (gaussian, 5)):
        embedding = reference.embed(kernel)
        assert thinned(embedding, enough) is embedding
