"""From samples to a kernel bandwidth, one for all or one per query."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg

ROWS = 4000


def median_bandwidth(samples: Float[Tensor, "*q n d"], *, rows: int = ROWS) -> Float[Tensor, "*q"]:
    r"""The plain median heuristic: a typical pair of samples is coupled at $e^{-1/2}$.

    $$h^2 = \mathrm{median}_{i<j} \|x_i - x_j\|^2$$

    Arguments:
        samples: Draws of the reference; each query has its own bandwidth.
        rows: At most this many draws, evenly spaced, are compared, so that the cost stays bounded.

    Returns:
        One bandwidth per query.

    Raises:
        ValueError: Fewer than two samples, or so many coincide that the median distance is zero.

    Example:
        >>> round(median_bandwidth(torch.tensor([[0.0], [3.0]])).item(), 4)
        3.0
    """
    return _median_square(_thinned(samples, rows)).sqrt()


def log_bandwidth(samples: Float[Tensor, "*q n d"], *, rows: int = ROWS) -> Float[Tensor, "*q"]:
    r"""The rule behind the bandwidths of the paper's table: a typical pair is coupled at $1 / (N + 1)$.

    $$h^2 = \frac{\mathrm{median}_{i<j} \|x_i - x_j\|^2}{2 \ln(N + 1)}$$

    Appendix C.3 of the paper calls it the median heuristic; its printed values are these, on N = 4000 samples.

    Arguments:
        samples: Draws of the reference; each query has its own bandwidth.
        rows: At most this many draws, evenly spaced, are compared; N is the number compared.

    Returns:
        One bandwidth per query.

    Raises:
        ValueError: Fewer than two samples, or so many coincide that the median distance is zero.

    Example:
        >>> round(log_bandwidth(torch.tensor([[0.0], [3.0]])).item(), 4)  # 3 / sqrt(2 ln 3)
        2.0239
    """
    compared = _thinned(samples, rows)
    return (_median_square(compared) / (2.0 * math.log(compared.shape[-2] + 1))).sqrt()


def dimension_bandwidth(dim: int) -> float:
    r"""The bandwidth of whitened coordinates: a typical pair is coupled at $e^{-1}$ in every dimension.

    $$h = \sqrt d$$

    Equation (14) of the paper.

    Arguments:
        dim: The number of coordinates d.

    Example:
        >>> dimension_bandwidth(16)
        4.0
    """
    _checks.at_least("dim", dim, 1)
    return math.sqrt(dim)


def _thinned(samples: Tensor, rows: int) -> Tensor:
    samples = _checks.points("samples", samples)
    _checks.at_least("rows", rows, 2)
    _checks.more_than_one_sample(samples)
    count = samples.shape[-2]
    if count <= rows:
        return samples
    index = torch.arange(rows, device=samples.device) * count // rows
    return samples[..., index, :]


def _median_square(samples: Tensor) -> Tensor:
    count = samples.shape[-2]
    first, second = torch.triu_indices(count, count, offset=1, device=samples.device)
    flat = samples.reshape(-1, *samples.shape[-2:])
    queries = flat.split(max(1, _linalg.BLOCK_ENTRIES // count**2))
    pairs = (_linalg.squared_distances(part, part)[:, first, second] for part in queries)
    median = torch.cat([_median(r2) for r2 in pairs]).reshape(samples.shape[:-2])
    _checks.distinct_samples(median)
    return median


def _median(values: Tensor) -> Tensor:
    # torch gives the lower of the two middle values; the median is their mean
    return 0.5 * (values.median(-1).values - (-values).median(-1).values)
