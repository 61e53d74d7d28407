r"""The inverse problem of the demo: what a pumping test says about an aquifer beside a river.

A well pumps for a day and the water level is read in two observation wells. With the well function E1 and an image
well behind the river,

$$s(r, t) = \frac{Q}{4 \pi T} \Big[ E_1\Big(\frac{r^2 S}{4 T t}\Big) - E_1\Big(\frac{r_*^2 S}{4 T t}\Big) \Big],
  \qquad r_* = \text{distance to the image well.}$$

Four unknowns, in base-10 logarithms: transmissivity T, storativity S, distance L to the river, and the standard
deviation of the readings.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray

NAMES = ("log10 T", "log10 S", "log10 L", "log10 noise")
LABELS = (
    "transmissivity, m²/day",
    "storativity",
    "distance to the river, m",
    "noise of a reading, m",
)
TRUTH = np.log10(np.array([420.0, 2.5e-3, 320.0, 0.05]))
PRIOR_MEAN = np.array([2.5, -2.5, 2.7, -1.3])
PRIOR_SD = np.array([0.4, 0.5, 0.35, 0.25])
PUMPING_RATE = 900.0
OBSERVATION_WELLS = np.array([[-30.0, 20.0], [60.0, 100.0]])


@dataclass(frozen=True)
class PumpingTest:
    """The readings: drawdown in metres, one row per observation well.

    Arguments:
        times: Days since the pump started.
        drawdown: What was read.
    """

    times: Array
    drawdown: Array


def predicted_drawdown(parameters: Array, times: Array) -> Array:
    """Drawdown in the observation wells, `(..., wells, times)`, for `(..., 4)` parameters."""
    from scipy.special import exp1

    transmissivity, storativity, distance = np.moveaxis(10.0 ** parameters[..., :3], -1, 0)[..., None, None]
    x, y = OBSERVATION_WELLS.T[..., None]
    diffusion = storativity / (4.0 * transmissivity * times)
    direct = exp1((x**2 + y**2) * diffusion)
    image = exp1(((2.0 * distance - x) ** 2 + y**2) * diffusion)
    return PUMPING_RATE / (4.0 * np.pi * transmissivity) * (direct - image)


def simulate_test(rng: np.random.Generator, readings: int = 7) -> PumpingTest:
    """A test at the true parameters: readings from half an hour to a day."""
    times = np.geomspace(0.02, 1.0, readings)
    clean = predicted_drawdown(TRUTH, times)
    return PumpingTest(times, clean + 10.0 ** TRUTH[3] * rng.standard_normal(clean.shape))


def log_posterior(parameters: Array, test: PumpingTest) -> Array:
    """Up to a constant, `(...)` for `(..., 4)` parameters: Gaussian prior, independent Gaussian readings."""
    residual = predicted_drawdown(parameters, test.times) - test.drawdown
    log_noise = np.log(10.0) * parameters[..., 3]
    fit = 0.5 * (residual**2).sum((-2, -1)) * np.exp(-2.0 * log_noise)
    readings = test.drawdown.size
    prior = 0.5 * (((parameters - PRIOR_MEAN) / PRIOR_SD) ** 2).sum(-1)
    return -fit - readings * log_noise - prior
