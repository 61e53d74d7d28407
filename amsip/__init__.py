"""Turn posterior samples into integrals: a few weighted nodes that integrate better than as many draws."""

from amsip._checks import NumericalError
from amsip.bandwidths import dimension_bandwidth, log_bandwidth, median_bandwidth
from amsip.discrepancy import mmd2, witness
from amsip.draws import read_draws
from amsip.files import load_metadata, load_rule, save_rule
from amsip.kernels import (
    InverseMultiquadric,
    Matern,
    Octaves,
    Polynomial,
    SquaredExponential,
    Whitened,
)

# the function takes the name of its module: `amsip.quadrature` is what a user calls
from amsip.quadrature import quadrature
from amsip.references.gaussian import Gaussian
from amsip.references.mixture import Mixture
from amsip.references.samples import Samples
from amsip.rules import Rule
from amsip.seeds import draw_seeds
from amsip.weights import optimal_weights, uniform_weights
from amsip.whitening import Whitening

__all__ = [
    "Gaussian",
    "InverseMultiquadric",
    "Matern",
    "Mixture",
    "NumericalError",
    "Octaves",
    "Polynomial",
    "Rule",
    "Samples",
    "SquaredExponential",
    "Whitened",
    "Whitening",
    "dimension_bandwidth",
    "draw_seeds",
    "load_metadata",
    "load_rule",
    "log_bandwidth",
    "median_bandwidth",
    "mmd2",
    "optimal_weights",
    "quadrature",
    "read_draws",
    "save_rule",
    "uniform_weights",
    "witness",
]
