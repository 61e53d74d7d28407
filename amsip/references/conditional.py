"""The posterior read off a simulated dataset: no density, no score, no trained model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from amsip import _checks
from amsip.bandwidths import log_bandwidth
from amsip.references.samples import Samples
from amsip.responsibilities import log_responsibilities


@dataclass(frozen=True, eq=False)
class Truncation:
    """What was kept of the conditional measure, per query.

    Arguments:
        atoms: How many atoms carry weight.
        share: The share of the responsibility they hold before renormalising.
        ess: The effective sample size of all the responsibilities, 1 / sum of squares.

    Example:
        >>> Truncation(torch.tensor(3), torch.tensor(0.99), torch.tensor(2.5)).atoms.item()
        3
    """

    atoms: Int64[Tensor, "*q"]
    share: Float[Tensor, "*q"]
    ess: Float[Tensor, "*q"]


@dataclass(frozen=True, eq=False)
class Conditional:
    r"""The Nadaraya-Watson conditional of joint draws $(x_i, y_i)$: one weighted sample per query.

    $$\rho(\cdot \mid y^\star) = \sum_i \alpha_i(y^\star)\, \delta_{x_i}$$

    Equation (9) of the paper, truncated to the atoms that hold `mass` of the responsibility.

    Arguments:
        parameters: The draws x_i.
        observations: The simulated observations y_i, or features of them.
        bandwidth: sigma_y; half the median heuristic of the observations when not given.
        mass: The responsibility the kept atoms must hold.
        cap: At most this many atoms are kept a query, whatever mass they hold.

    Raises:
        ValueError: The two sets of draws differ in number, or hold a row that is not finite.

    Example:
        >>> x = torch.linspace(-1, 1, 50)[:, None]
        >>> posterior = Conditional(x, 2 * x, bandwidth=0.1).given(torch.tensor([1.0]))
        >>> round(posterior.moments()[0].item(), 2)
        0.5
    """

    parameters: Float[Tensor, "n d"]
    observations: Float[Tensor, "_ k"]
    bandwidth: float | None = None
    mass: float = 0.99
    cap: int = 2048

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", _checks.points("parameters", self.parameters))
        object.__setattr__(self, "observations", _checks.points("observations", self.observations))
        _checks.joint_draws(self.parameters, self.observations)
        _checks.share("mass", self.mass)
        _checks.at_least("cap", self.cap, 1)
        if self.bandwidth is not None:
            _checks.positive("bandwidth", self.bandwidth)

    @cached_property
    def sigma_y(self) -> float:
        """The observation bandwidth in use."""
        return observation_bandwidth(self.observations) if self.bandwidth is None else self.bandwidth

    def given(self, queries: Float[Tensor, "*q k"], *, exclude: Int64[Tensor, "*q"] | None = None) -> Samples:
        """The conditional measure at each query; queries that need fewer atoms carry zeros.

        Arguments:
            queries: The observations y*, one vector or a batch.
            exclude: Per query, the row of the dataset it came from, left out; -1 for none.

        Returns:
            A weighted sample with the queries' leading axes.
        """
        weights, index, kept = self._leading(queries, exclude)
        width = int(kept.max())
        weights = torch.where(torch.arange(width, device=kept.device) < kept[..., None], weights[..., :width], 0.0)
        return Samples(self.parameters[index[..., :width]], weights.to(self.parameters))

    def truncation(self, queries: Float[Tensor, "*q k"], *, exclude: Int64[Tensor, "*q"] | None = None) -> Truncation:
        """How sharp the conditional is at each query, and what truncating it kept."""
        weights, _, kept = self._leading(queries, exclude)
        share = weights.cumsum(-1).gather(-1, kept[..., None] - 1)[..., 0]
        every = log_responsibilities(self.observations, queries, self.sigma_y, exclude=exclude)
        return Truncation(kept, share, (-torch.logsumexp(2.0 * every, -1)).exp())

    def _leading(self, queries: Tensor, exclude: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Per query: the largest responsibilities, their rows, and how many reach the mass."""
        queries = _checks.vector("queries", queries).to(self.observations)
        _checks.same_dim("queries", queries, self.observations.shape[-1])
        log_weights = log_responsibilities(self.observations, queries, self.sigma_y, exclude=exclude)
        count = min(self.cap, log_weights.shape[-1])
        weights, index = log_weights.exp().topk(count, dim=-1)
        kept = ((weights.cumsum(-1) < self.mass).sum(-1) + 1).clamp_max(count)
        return weights, index, kept


def observation_bandwidth(
    observations: Float[Tensor, "n k"],
    *,
    share: float = 0.5,
    rule: Callable[[Float[Tensor, "n k"]], Float[Tensor, ""]] = log_bandwidth,
) -> float:
    """The observation bandwidth as a share of a bandwidth rule: half the log rule, as in the paper's groundwater run.

    Arguments:
        observations: The simulated observations, or features of them.
        share: The factor.
        rule: `log_bandwidth` for a sharp conditional, `median_bandwidth` for a broad one.

    Example:
        >>> y = torch.tensor([[0.0], [3.0]])
        >>> round(observation_bandwidth(y), 3)
        1.012
    """
    _checks.positive("share", share)
    return share * float(rule(observations))
