"""How much each simulated observation answers for a query: the Nadaraya-Watson weights of a joint dataset."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from amsip import _checks, _linalg


def log_responsibilities(
    observations: Float[Tensor, "n k"],
    queries: Float[Tensor, "*q k"],
    bandwidth: float,
    *,
    exclude: Int64[Tensor, "*q"] | None = None,
) -> Float[Tensor, "*q n"]:
    r"""The logarithms of the weights of a kernel regression at each query.

    $$\alpha_i(y^\star) = \frac{k_{\sigma_y}(y_i, y^\star)}{\sum_j k_{\sigma_y}(y_j, y^\star)}, \qquad
      k_{\sigma_y}(y, y') = \exp\big(-\|y - y'\|^2 / 2 \sigma_y^2\big)$$

    Equation (9) of the paper, normalised in log space: a query far from every observation still has weights.

    Arguments:
        observations: The simulated observations y_i.
        queries: The observations y* asked about.
        bandwidth: The observation bandwidth sigma_y.
        exclude: Per query, a row that gets no weight; -1 for none. A query taken from the dataset leaves itself out.

    Returns:
        Log weights whose exponentials sum to one; minus infinity at excluded rows.

    Example:
        >>> y = torch.tensor([[0.0], [1.0]])
        >>> log_responsibilities(y, torch.tensor([1e6]), 1e-3).exp()
        tensor([0., 1.])
    """
    _checks.positive("bandwidth", bandwidth)
    flat = queries.reshape(-1, queries.shape[-1])
    exponent = _linalg.squared_distances(flat, observations) * (-0.5 / bandwidth**2)
    if exclude is not None:
        rows = torch.arange(len(observations), device=observations.device)
        exponent = exponent.masked_fill(rows == exclude.reshape(-1, 1), -torch.inf)
    return torch.log_softmax(exponent, -1).reshape(*queries.shape[:-1], len(observations))
