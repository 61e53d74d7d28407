"""What the flow's posteriors are like, whatever integrates them: shape, coverage of the truth, and the floor's bias."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.paper.base import Data
from amsip.paper.flow_cells import Charted
from amsip.paper.flow_posterior import KERNEL, RANK, Latent, chart_of, trained_flow
from amsip.problems.toys import BASE_SEED
from amsip.references.samples import Samples

FLOOR_SETS = 256
SEED = BASE_SEED + 140_000
LEVELS = (0.5, 0.9)


def shape(charted: Charted, space: Latent) -> Data:
    """How the posterior changes from one observation to the next, with the sampling noise of each number beside it.

    Every number is had from two independent banks; half their squared difference is the noise of one.

    Arguments:
        charted: The observations.
        space: The latent.
    """
    points = space.points(charted.found.coefficients)
    banks = points.chunk(2, -2)
    covs = [Samples(bank).moments()[1] for bank in banks]
    spectra = [torch.linalg.eigvalsh(cov) for cov in covs]
    own = [Samples(chart_of(bank).forward(bank)).embed(KERNEL).energy for bank in banks]
    found = {
        "log_determinant": [spectrum.log().sum(-1) for spectrum in spectra],
        "leading_variance": [spectrum[:, -1].log() for spectrum in spectra],
        "spread": [spectrum.sum(-1).log() for spectrum in spectra],
        "floor": [(1.0 - energy).log() for energy in own],
    }
    rows = {name: moves(*values) for name, values in found.items()}
    gaussian = (1.0 + 2.0 / RANK) ** (-RANK / 2.0)
    energies = {"energy": own[0].mean(), "gaussian_energy": gaussian + (1.0 - gaussian) / banks[0].shape[-2]}
    coupling = torch.stack([KERNEL.gram(bank).median() for bank in charted.bank])
    return rows | energies | {"coupling": coupling.median(), "coupling_extremes": [coupling.min(), coupling.max()]}


def moves(first: Float[Tensor, "q"], second: Float[Tensor, "q"]) -> Data:
    """The spread of a logarithm over observations beside the noise of measuring it, from two measurements.

    Example:
        >>> found = moves(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.5, 1.5, 2.5]))
        >>> round(found["std"].item(), 2), round(found["noise"].item(), 4)
        (1.0, 0.3536)
    """
    noise = (0.5 * (first - second).square().mean()).sqrt()
    both = 0.5 * (first + second)
    return {"std": both.std(), "noise": noise, "ratio_of_extremes": (both.max() - both.min()).exp()}


def coverage(charted: Charted, space: Latent) -> Data:
    """How often the truth's latent coordinates lie within the flow's central intervals: a check of the flow itself."""
    trained = trained_flow()
    truth = space.points(trained.images.coefficients(charted.found.truth))[:, None]
    rank = (space.points(charted.found.coefficients) < truth).double().mean(-2)
    inside = {f"{level:g}": ((2.0 * rank - 1.0).abs() <= level).double().mean() for level in LEVELS}
    return {"inside": inside, "rejected": charted.found.rejected.mean(), "worst": charted.found.rejected.max()}


def outside(space: Latent) -> Data:
    """The largest variance of images beyond the flow's coefficients, and the least along the latent's directions."""
    trained = trained_flow()
    basis, spread = trained.images.directions.double(), trained.spread.double()
    vector = torch.randn(len(spread), generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    for _ in range(200):
        vector = vector - (basis @ vector) @ basis
        vector = spread.square() * (vector / vector.norm())
    vector = vector - (basis @ vector) @ basis
    return {"largest_outside": vector.norm(), "retained": space.retained}


def deflation(charted: Charted, budgets: Sequence[int]) -> list[Data]:
    r"""The mean floor over (1 - c) / M, for seeds that are distinct rows of a bank and for independent ones.

    $$\mathbb E\, \mathrm{MMD}^2 = \frac{1 - c}{M} \cdot \frac{L - M}{L - 1}$$

    for distinct rows of L, and without the second factor for rows drawn with replacement.

    Arguments:
        charted: The observations.
        budgets: The values of M.
    """
    count = charted.bank.shape[-2]
    generator = torch.Generator().manual_seed(SEED)
    energy = charted.embedding.energy
    sums: dict[tuple[int, str], list[Tensor]] = {}
    for bank, c in zip(charted.bank, energy, strict=True):
        gram = KERNEL.gram(bank)
        mean = gram.mean(-1)
        keys = torch.rand(FLOOR_SETS, count, generator=generator)
        repeated = torch.randint(count, (FLOOR_SETS, max(budgets)), generator=generator)
        order = keys.topk(max(budgets), -1).indices
        for m in budgets:
            for name, index in (("distinct", order[:, :m]), ("independent", repeated[:, :m])):
                pairs = gram[index[:, :, None], index[:, None, :]].mean((-2, -1))
                score = pairs - 2.0 * mean[index].mean(-1) + c
                sums.setdefault((m, name), []).append(score.mean() * m / (1.0 - c))
    rows = []
    for m in budgets:
        parts = {name: torch.stack(sums[m, name]) for name in ("distinct", "independent")}
        row = {name: part.mean() for name, part in parts.items()}
        errors = {f"{name}_error": part.std() / len(part) ** 0.5 for name, part in parts.items()}
        rows.append({"m": m, "predicted": (count - m) / (count - 1), **row, **errors})
    return rows
