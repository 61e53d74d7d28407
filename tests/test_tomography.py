import itertools
import math

import numpy as np
import pytest
import torch

from amsip.problems.projector import RayProjector

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
