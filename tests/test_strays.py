"""Strays come back to their seeds, nobody else moves."""

import pytest
import torch

from amsip.kernels import SquaredExponential
from amsip.maps.strays import recall_strays
from amsip.references.gaussian import Gaussian
from amsip.references.samples import Samples


def elongated():
    return Gaussian(torch.tensor([10.0, -3.0]), torch.diag(torch.tensor([100.0, 0.01])))


def test_reach_is_measured_in_standard_deviations_of_the_posterior():
    embedding = elongated().embed(SquaredExponential(1.0))
    seeds = torch.tensor([[10.0, -3.0], [10.0, -3.0]])
    nodes = torch.tensor([[10.0 + 30.0, -3.0], [10.0, -3.0 + 0.5]])
    kept = recall_strays(nodes, seeds, embedding)
    # three deviations are within sqrt(2) + 2, five are not, although they are the shorter way
    assert torch.equal(kept[0], nodes[0])
    assert torch.equal(kept[1], seeds[1])


@pytest.mark.parametrize(("distance", "stays"), [(4.9, True), (5.1, False)])
def test_a_far_seed_widens_the_reach_of_its_own_query_alone(distance, stays):
    embedding = Gaussian(torch.zeros(2, 1), torch.eye(1).expand(2, 1, 1)).embed(SquaredExponential(1.0))
    seeds = torch.tensor([[[0.0], [4.0]], [[0.0], [0.5]]])
    nodes = torch.tensor([[[distance], [1.0]], [[distance], [1.0]]])
    kept = recall_strays(nodes, seeds, embedding)
    assert torch.equal(kept[0], nodes[0] if stays else torch.stack([seeds[0, 0], nodes[0, 1]]))
    assert torch.equal(kept[1], torch.stack([seeds[1, 0], nodes[1, 1]]))


def test_a_posterior_without_spread_in_a_direction_is_no_obstacle():
    line = torch.stack([torch.linspace(-1.0, 1.0, 50), torch.zeros(50)], -1)
    embedding = Samples(line).embed(SquaredExponential(1.0))
    nodes = line[::10].clone()
    assert torch.equal(recall_strays(nodes, line[:5], embedding), nodes)
