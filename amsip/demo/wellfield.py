r"""What the demo integrates: two years of a well field, simulated once per node.

Three wells feed a town beside a river and a wetland. The drawdown s obeys

$$S\, \partial_t s = T\, \Delta s + \sum_w Q_w(t)\, \delta_{x_w}$$

in a rectangle with the river (s = 0) on one side and no flow through the others; a Galerkin method with cosine modes
solves it, month by month, exactly in time. It stands for any expensive model: the only thing a rule asks of it
is that it can be run at given parameters.
"""

import torch
from jaxtyping import Float
from torch import Tensor

WELLS = torch.tensor([[0.0, 0.0], [-180.0, 260.0], [-420.0, -150.0]], dtype=torch.float64)
BASE_RATES = torch.tensor([900.0, 700.0, 500.0], dtype=torch.float64)
WETLAND = torch.tensor([-150.0, 620.0], dtype=torch.float64)
WEST, HALF_HEIGHT = 1800.0, 1500.0
MONTHS, DAYS = 24, 30.4375
MODES = (40, 32)
LICENCE = 3.5

CHUNK = 64

QUANTITIES = (
    "deepest drawdown at the wetland, m",
    "months beyond the licence, of 24",
    "drawdown beyond the licence, m",
    "probability of breaking the licence",
)


def predict(parameters: Float[Tensor, "n 4"]) -> Float[Tensor, "n 4"]:
    """The four quantities of interest, one row per parameter set.

    Example:
        >>> predict(torch.tensor([[2.6, -2.6, 2.5, -1.3]])).shape
        torch.Size([1, 4])
    """
    return torch.cat([_quantities(wetland_drawdown(part)) for part in parameters.split(CHUNK)])


def wetland_drawdown(parameters: Float[Tensor, "n 4"], modes: tuple[int, int] = MODES) -> Float[Tensor, "n months"]:
    """Drawdown at the wetland at the end of each month, for `(n, 4)` parameters."""
    transmissivity, storativity, distance = (10.0 ** parameters[:, :3].to(torch.float64)).unbind(-1)
    width = WEST + distance
    alpha = (torch.arange(modes[0], dtype=torch.float64) + 0.5) * torch.pi / width[:, None]
    beta = torch.arange(modes[1], dtype=torch.float64) * torch.pi / (2.0 * HALF_HEIGHT)
    norm = 0.5 * width[:, None, None] * HALF_HEIGHT * torch.where(beta > 0, 1.0, 2.0)
    across = torch.cos(beta * (WELLS[:, 1:] + HALF_HEIGHT))
    source = torch.einsum("w,nwi,wj->nij", BASE_RATES, torch.cos(alpha[:, None] * (WELLS[:, :1] + WEST)), across)
    decay = (transmissivity / storativity)[:, None, None] * (alpha[:, :, None] ** 2 + beta**2)
    reading = torch.cos(alpha * (WETLAND[0] + WEST))[:, :, None] * torch.cos(beta * (WETLAND[1] + HALF_HEIGHT))
    return _march(decay, source * reading / (storativity[:, None, None] * norm))


def season() -> Float[Tensor, "months"]:
    """Pumping relative to the base rates: more in summer, and more in the second year."""
    month = torch.arange(MONTHS, dtype=torch.float64)
    yearly = 1.0 + 0.45 * torch.sin(2.0 * torch.pi * (month - 3.0) / 12.0)
    return yearly * torch.where(month < 12, 1.0, 1.25)


def _march(decay: Tensor, forcing: Tensor) -> Tensor:
    """Each mode for itself, a' = -decay a + season forcing, constant in a month; the sum over modes, monthly."""
    kept = torch.exp(-decay * DAYS)
    gained = (1.0 - kept) / decay * forcing
    state, months = torch.zeros_like(decay), []
    for factor in season():
        state = kept * state + factor * gained
        months.append(state.sum((-2, -1)))
    return torch.stack(months, -1)


def _quantities(drawdown: Tensor) -> Tensor:
    deepest = drawdown.amax(-1)
    beyond = (drawdown > LICENCE).to(drawdown).sum(-1)
    return torch.stack([deepest, beyond, (deepest - LICENCE).clamp_min(0.0), (deepest > LICENCE).to(drawdown)], -1)
