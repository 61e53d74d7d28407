"""A conditional density: a linear regression, and a spline flow of what the regression leaves."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from amsip.maps.layers import seeded

ROWS = 8192


class ConditionalFlow(nn.Module):
    r"""The law of coefficients a given a context c.

    $$a = B c + b + L\, T_c^{-1}(\xi), \qquad \xi \sim \mathcal N(0, I)$$

    B, b and L (the root of the residual covariance) are least squares; T is a neural spline flow of zuko, the identity
    before training, so that training starts from the best Gaussian law of this kind. Draws and densities take one
    context per query, `(*q, k)`, and any number of rows per query.

    Arguments:
        features: The number of coefficients.
        context: The length of the context.
        transforms: Spline transformations, one after the other.
        width: Of the two hidden layers of each.
        bins: Of each spline.
        passes: Groups of coefficients that each transformation treats in turn; two is a coupling.
        generator: Draws the initial parameters.

    Raises:
        ImportError: zuko is not installed.

    Example:
        >>> flow = ConditionalFlow(4, 3, transforms=1, width=8, generator=torch.Generator().manual_seed(0))
        >>> draws = flow.sample(5, torch.zeros(2, 3), generator=torch.Generator().manual_seed(0))
        >>> draws.shape, flow.log_prob(draws, torch.zeros(2, 3)).shape
        (torch.Size([2, 5, 4]), torch.Size([2, 5]))
    """

    slope: Tensor
    offset: Tensor
    root: Tensor

    def __init__(
        self,
        features: int,
        context: int,
        *,
        transforms: int = 2,
        width: int = 192,
        bins: int = 6,
        passes: int = 2,
        generator: Generator | None = None,
    ) -> None:
        try:
            from zuko.flows import NSF
        except ImportError:
            raise ImportError("A conditional flow needs zuko: `pip install amsip[flows]`.") from None
        super().__init__()
        self.settings: dict[str, Any] = {"features": features, "context": context, "transforms": transforms}
        self.settings |= {"width": width, "bins": bins, "passes": passes}
        with seeded(generator):
            hidden = {"hidden_features": (width, width), "passes": passes}
            self.flow = NSF(features, context, transforms=transforms, bins=bins, **hidden)
        for part in self.flow.transform.transforms:
            nn.init.zeros_(part.hyper[-1].weight)
            nn.init.zeros_(part.hyper[-1].bias)
        self.register_buffer("slope", torch.zeros(features, context))
        self.register_buffer("offset", torch.zeros(features))
        self.register_buffer("root", torch.eye(features))

    def regress(self, coefficients: Float[Tensor, "n d"], context: Float[Tensor, "n k"]) -> None:
        """Sets the linear part by least squares on a sample."""
        rows = torch.cat([context, torch.ones_like(context[:, :1])], 1).to(torch.float64)
        found = torch.linalg.lstsq(rows, coefficients.to(torch.float64)).solution
        residuals = coefficients - rows @ found
        root = torch.linalg.cholesky(residuals.mT @ residuals / len(rows))
        for buffer, value in ((self.slope, found[:-1].mT), (self.offset, found[-1]), (self.root, root)):
            buffer.copy_(value)

    def log_prob(self, coefficients: Float[Tensor, "*q n d"], context: Float[Tensor, "*q k"]) -> Float[Tensor, "*q n"]:
        """The log density, differentiable in both."""
        centred = coefficients - self._centre(context)[..., None, :]
        residuals = torch.linalg.solve_triangular(self.root, centred.mT, upper=False).mT
        density: Tensor = self.flow(context[..., None, :]).log_prob(residuals)
        return density - self.root.diagonal().log().sum()

    def score(self, coefficients: Float[Tensor, "*q n d"], context: Float[Tensor, "*q k"]) -> Float[Tensor, "*q n d"]:
        """The gradient of the log density in the coefficients, by automatic differentiation."""
        with torch.enable_grad():
            start = coefficients.detach().requires_grad_()
            return torch.autograd.grad(self.log_prob(start, context).sum(), start)[0]

    def sample(
        self, count: int, context: Float[Tensor, "*q k"], *, generator: Generator | None = None
    ) -> Float[Tensor, "*q count d"]:
        """Independent draws, some rows at a time."""
        noise = torch.randn(*context.shape[:-1], count, len(self.offset), generator=generator)
        step = max(1, ROWS // max(1, context.shape[:-1].numel()))
        with torch.no_grad():
            inverse = self.flow(context[..., None, :]).transform.inv
            residuals = torch.cat([inverse(part) for part in noise.to(context).split(step, -2)], -2)
            return residuals @ self.root.mT + self._centre(context)[..., None, :]

    def forward(self, coefficients: Float[Tensor, "n d"], context: Float[Tensor, "n k"]) -> Float[Tensor, "n 1"]:
        """Minus the log density of each pair, as a column: what maximum likelihood makes small."""
        return -self.log_prob(coefficients[:, None, :], context)

    def given(self, context: Float[Tensor, "n k"]) -> "partial[Tensor]":
        """The losses of pairs whose contexts are these, as `amsip.training.fit_map` asks for them."""
        return partial(_losses, self, context)

    def _centre(self, context: Tensor) -> Tensor:
        return context @ self.slope.mT + self.offset


def _losses(flow: ConditionalFlow, context: Tensor, coefficients: Tensor, embedding: object = None) -> Tensor:
    losses: Tensor = flow(coefficients, context)
    return losses
