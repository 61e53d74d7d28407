"""Turn posterior samples into integrals: a few weighted nodes that integrate better than as many draws."""

from amsip._checks import NumericalError
from amsip.bandwidths import dimension_bandwidth, log_bandwidth, median_bandwidth
from amsip.discrepancy import mmd2, witness
from amsip.draws import read_draws
from amsip.files import load_metadata, load_rule, save_rule
from amsip.kernels import InverseMultiquadric, Matern, Octaves, Polynomial, SquaredExponential, Whitened
from amsip.maps.attention import AttentionMap
from amsip.maps.conditioned import ConditionedMap
from amsip.maps.descent import Descent
from amsip.maps.unrolled import UnrolledMap
from amsip.pretrained import available_maps, load_map, save_map

# the function takes the name of its module: `amsip.quadrature` is what a user calls
from amsip.quadrature import quadrature, resolution_dial
from amsip.references.conditional import Conditional, observation_bandwidth
from amsip.references.gaussian import Gaussian
from amsip.references.mixture import Mixture
from amsip.references.projected import Projected
from amsip.references.sampler import Sampler
from amsip.references.samples import Samples
from amsip.rules import Rule, pool
from amsip.seeds import draw_seeds
from amsip.subspace import Subspace
from amsip.training import FitConfig, fit_map
from amsip.weights import mean_shift_weights, optimal_weights, simplex_weights, uniform_weights, weight_report
from amsip.whitening import Whitening

__all__ = [
    "AttentionMap",
    "Conditional",
    "ConditionedMap",
    "Descent",
    "FitConfig",
    "Gaussian",
    "InverseMultiquadric",
    "Matern",
    "Mixture",
    "NumericalError",
    "Octaves",
    "Polynomial",
    "Projected",
    "Rule",
    "Sampler",
    "Samples",
    "SquaredExponential",
    "Subspace",
    "UnrolledMap",
    "Whitened",
    "Whitening",
    "available_maps",
    "dimension_bandwidth",
    "draw_seeds",
    "fit_map",
    "load_map",
    "load_metadata",
    "load_rule",
    "log_bandwidth",
    "mean_shift_weights",
    "median_bandwidth",
    "mmd2",
    "observation_bandwidth",
    "optimal_weights",
    "pool",
    "quadrature",
    "read_draws",
    "resolution_dial",
    "save_map",
    "save_rule",
    "simplex_weights",
    "uniform_weights",
    "weight_report",
    "witness",
]
