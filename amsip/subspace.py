"""The directions of parameter space that the observation informs, read with or without a score."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.responsibilities import log_responsibilities
from amsip.whitening import Whitening

PRIOR_FLOOR = 1e-12
REGRESSION_ROWS = 512


@dataclass(frozen=True, eq=False)
class Subspace:
    r"""An informed subspace of a prior with mean m and covariance S: features, lift and what lies beside it.

    $$z = V^\top S^{-1/2} (x - m), \qquad x \approx m + S^{1/2} V z$$

    Appendix B.2 of the paper. The directions V are orthonormal in the prior metric, so the features have identity prior
    covariance and are independent of the complement under a Gaussian prior.

    Arguments:
        prior_mean: m.
        prior_cov: S.
        directions: V, leading first.
        spectrum: All the eigenvalues the directions were chosen from, largest first.

    Example:
        >>> plane = leading_subspace(torch.diag(torch.tensor([9.0, 1.0, 0.0])), torch.zeros(3), torch.eye(3), rank=2)
        >>> plane.features(torch.tensor([[1.0, 2.0, 3.0]])).abs()
        tensor([[1., 2.]])
    """

    prior_mean: Float[Tensor, "d"]
    prior_cov: Float[Tensor, "d d"]
    directions: Float[Tensor, "d r"]
    spectrum: Float[Tensor, "d"]

    @property
    def rank(self) -> int:
        """The number of directions r."""
        return self.directions.shape[-1]

    @cached_property
    def chart(self) -> Whitening:
        """Features and lift as a chart onto r coordinates."""
        root, inverse_root = _linalg.symmetric_root(self.prior_cov, PRIOR_FLOOR)
        return Whitening(self.prior_mean, root @ self.directions, self.directions.mT @ inverse_root)

    def features(self, x: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q n r"]:
        """The coordinates z of parameters x."""
        return self.chart.forward(x)

    def lift(self, z: Float[Tensor, "*q n r"]) -> Float[Tensor, "*q n d"]:
        """The prior's conditional mean of the parameters given their features."""
        return self.chart.inverse(z)

    @cached_property
    def complement_cov(self) -> Float[Tensor, "d d"]:
        r"""The prior covariance that the features leave, $S - S^{1/2} V V^\top S^{1/2}$."""
        return self.prior_cov - self.chart.root @ self.chart.root.mT

    def complete(
        self, mean: Float[Tensor, "*q r"], cov: Float[Tensor, "*q r r"]
    ) -> tuple[Float[Tensor, "*q d"], Float[Tensor, "*q d d"]]:
        """Moments of the parameters from moments of the features: lifted, and completed by the complement's prior."""
        lift = self.chart.root
        lifted = self.lift(mean[..., None, :])[..., 0, :]
        return lifted, lift @ cov @ lift.mT + self.complement_cov

    @property
    def retained(self) -> float:
        """The share of the spectrum that the directions hold."""
        return float(self.spectrum[: self.rank].sum() / self.spectrum.sum())

    @property
    def discarded(self) -> float:
        r"""The sum of the eigenvalues left out.

        Half of it bounds the expected Kullback-Leibler divergence from the posterior to its truncation when the prior
        is Gaussian and the matrix was the score-based H (Zahm et al., 2022).
        """
        return float(self.spectrum[self.rank :].clamp_min(0.0).sum())


def leading_subspace(
    matrix: Float[Tensor, "d d"],
    prior_mean: Float[Tensor, "d"],
    prior_cov: Float[Tensor, "d d"],
    *,
    rank: int | None = None,
) -> Subspace:
    """The leading eigenvectors of an information matrix given in the prior metric.

    Arguments:
        matrix: One of `score_information`, `sliced_information`, `regression_information`, `spread_information`.
        prior_mean: The prior's mean.
        prior_cov: The prior's covariance.
        rank: The number of directions; `participation_rank` of the spectrum when not given.

    Example:
        >>> leading_subspace(torch.diag(torch.tensor([9.0, 0.1])), torch.zeros(2), torch.eye(2)).rank
        2
    """
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    values, vectors = values.flip(-1), vectors.flip(-1)
    chosen = participation_rank(values) if rank is None else rank
    _checks.rank(chosen, matrix.shape[-1])
    return Subspace(prior_mean, prior_cov, vectors[:, :chosen], values)


def participation_rank(spectrum: Float[Tensor, "d"]) -> int:
    r"""The effective number of eigenvalues, $\lceil (\sum \lambda)^2 / \sum \lambda^2 \rceil$.

    Example:
        >>> participation_rank(torch.tensor([1.0, 1.0, 1.0, 0.0]))
        3
    """
    positive = spectrum.clamp_min(0.0)
    _checks.informative(positive)
    # a hair is taken off so that equal eigenvalues count as exactly as many as there are
    return max(1, math.ceil(float(positive.sum() ** 2 / positive.square().sum()) - 1e-6))


def energy_rank(spectrum: Float[Tensor, "d"], share: float = 0.99) -> int:
    """The smallest number of leading eigenvalues that hold a share of their sum.

    Example:
        >>> energy_rank(torch.tensor([6.0, 3.0, 1.0]), share=0.9)
        2
    """
    _checks.share("share", share)
    positive = spectrum.clamp_min(0.0)
    _checks.informative(positive)
    held = positive.cumsum(-1) / positive.sum()
    return min(int((held < share - 1e-6).sum()) + 1, len(spectrum))


def score_free_spectrum(score_spectrum: Float[Tensor, "*r"]) -> Float[Tensor, "*r"]:
    r"""The eigenvalues of the score-free C that go with those of the score-based H in a linear-Gaussian model.

    $$\lambda_k(\tilde C) = \frac{\lambda_k(\tilde H)}{1 + \lambda_k(\tilde H)}$$

    Equation (15) of the paper.

    Example:
        >>> score_free_spectrum(torch.tensor([3.0]))
        tensor([0.7500])
    """
    return score_spectrum / (1.0 + score_spectrum)


def score_information(scores: Float[Tensor, "n d"], prior_cov: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    r"""The gradient information H of the likelihood, in the prior metric.

    $$\tilde H = S^{1/2}\, \mathbb E\big[\nabla_x \log p(y \mid x)\, \nabla_x \log p(y \mid x)^\top\big]\, S^{1/2}$$

    Arguments:
        scores: Gradients in x of the log likelihood, at joint draws of x and y.
        prior_cov: S.

    Example:
        >>> score_information(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), 4.0 * torch.eye(2))
        tensor([[4., 0.],
                [0., 0.]])
    """
    whitened = _checks.points("scores", scores) @ _linalg.symmetric_root(prior_cov, PRIOR_FLOOR)[0]
    return whitened.mT @ whitened / len(whitened)


def sliced_information(
    parameters: Float[Tensor, "n d"],
    observations: Float[Tensor, "n k"],
    prior_mean: Float[Tensor, "d"],
    prior_cov: Float[Tensor, "d d"],
    *,
    slices: int = 32,
) -> Float[Tensor, "d d"]:
    r"""The covariance C of conditional means, by sliced inverse regression, with no score.

    $$\tilde C = S^{-1/2}\, \mathrm{Cov}_y\big(\mathbb E[x \mid y]\big)\, S^{-1/2}$$

    Observations are cut into cells of equal size by repeated halving along their leading direction. Each cell is split
    in two and the two means are multiplied, so that their noise does not count as information.

    Arguments:
        parameters: Joint draws x_i.
        observations: Their observations y_i, or features of them.
        prior_mean: m.
        prior_cov: S.
        slices: The number of cells, a power of two; four draws a cell at least.

    Example:
        >>> x = torch.randn(4096, 2, generator=torch.Generator().manual_seed(0))
        >>> sliced_information(x, x[:, :1], torch.zeros(2), torch.eye(2)).diagonal().round(decimals=1).abs()
        tensor([1., 0.])
    """
    first, second = _split_cells(parameters, observations, prior_mean, prior_cov, slices)
    a, b = first.mean(-2), second.mean(-2)
    return _symmetric(a.mT @ b / len(a))


def spread_information(
    parameters: Float[Tensor, "n d"],
    observations: Float[Tensor, "n k"],
    prior_mean: Float[Tensor, "d"],
    prior_cov: Float[Tensor, "d d"],
    *,
    slices: int = 32,
) -> Float[Tensor, "d d"]:
    r"""The second-moment (SAVE) matrix, which also sees directions along which y moves only the spread.

    $$\mathbb E_y\big[(I - S^{-1/2}\, \mathrm{Cov}(x \mid y)\, S^{-1/2})^2\big]$$

    Cells and their split as in `sliced_information`.

    Arguments:
        parameters: Joint draws x_i.
        observations: Their observations y_i, or features of them.
        prior_mean: m.
        prior_cov: S.
        slices: The number of cells, a power of two; four draws a cell at least.

    Example:
        >>> x = torch.randn(4096, 2, generator=torch.Generator().manual_seed(0))
        >>> H = spread_information(x, x[:, :1].abs(), torch.zeros(2), torch.eye(2))
        >>> bool(H[0, 0] > 10 * H[1, 1].abs())
        True
    """
    first, second = _split_cells(parameters, observations, prior_mean, prior_cov, slices)
    identity = torch.eye(first.shape[-1], dtype=first.dtype, device=first.device)
    return _symmetric(((identity - _covariance(first)) @ (identity - _covariance(second))).mean(0))


def regression_information(
    parameters: Float[Tensor, "n d"],
    observations: Float[Tensor, "n k"],
    prior_mean: Float[Tensor, "d"],
    prior_cov: Float[Tensor, "d d"],
    *,
    bandwidth: float,
) -> Float[Tensor, "d d"]:
    r"""The covariance C of conditional means, by kernel regression of x on y.

    At every observation the conditional mean is estimated twice, from the even and from the odd draws, its own left
    out, and the two are multiplied.

    Arguments:
        parameters: Joint draws x_i.
        observations: Their observations y_i, or features of them.
        prior_mean: m.
        prior_cov: S.
        bandwidth: The observation bandwidth sigma_y.

    Example:
        >>> x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> C = regression_information(x, x[:, :1], torch.zeros(2), torch.eye(2), bandwidth=0.1)
        >>> bool(C[0, 0] > 0.9), bool(C[1, 1].abs() < 0.05)
        (True, True)
    """
    white = _whitened_pairs(parameters, observations, prior_mean, prior_cov)
    total = torch.zeros_like(prior_cov)
    for rows in torch.arange(len(white), device=white.device).split(REGRESSION_ROWS):
        even, odd = (_half_means(white, observations, rows, half, bandwidth) for half in (0, 1))
        total = total + even.mT @ odd
    return _symmetric(total / len(white))


def _half_means(white: Tensor, observations: Tensor, rows: Tensor, half: int, bandwidth: float) -> Tensor:
    """The conditional means at some rows from every second draw, each row left out of its own."""
    own = torch.where(rows % 2 == half, rows // 2, -1)
    return (
        log_responsibilities(observations[half::2], observations[rows], bandwidth, exclude=own).exp() @ white[half::2]
    )


def _split_cells(
    parameters: Tensor, observations: Tensor, prior_mean: Tensor, prior_cov: Tensor, slices: int
) -> tuple[Tensor, Tensor]:
    """Whitened parameters by cell of the observations, each cell in two halves of no order."""
    white = _whitened_pairs(parameters, observations, prior_mean, prior_cov)
    _checks.slices(slices, len(white))
    size = len(white) // slices
    # strided, so that dropping a remainder does not drop the end of a chain
    rows = torch.arange(size * slices, device=white.device) * len(white) // (size * slices)
    cells = rows[None]
    while len(cells) < slices:
        cells = _halved(cells, observations)
    cells = cells.sort(-1).values
    return white[cells[:, 0::2]], white[cells[:, 1::2]]


def _halved(cells: Tensor, observations: Tensor) -> Tensor:
    """Each cell cut at the median of its leading direction."""
    y = observations[cells]
    y = y - y.mean(-2, keepdim=True)
    leading = torch.linalg.eigh(y.mT @ y)[1][..., -1:]
    order = (y @ leading)[..., 0].argsort(-1)
    return cells.gather(-1, order).reshape(2 * len(cells), -1)


def _whitened_pairs(parameters: Tensor, observations: Tensor, prior_mean: Tensor, prior_cov: Tensor) -> Tensor:
    parameters, observations = _checks.points("parameters", parameters), _checks.points("observations", observations)
    _checks.joint_draws(parameters, observations)
    return (parameters - prior_mean) @ _linalg.symmetric_root(prior_cov, PRIOR_FLOOR)[1]


def _covariance(cells: Tensor) -> Tensor:
    centred = cells - cells.mean(-2, keepdim=True)
    return centred.mT @ centred / (cells.shape[-2] - 1)


def _symmetric(matrix: Tensor) -> Tensor:
    return 0.5 * (matrix + matrix.mT)
