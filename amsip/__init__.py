"""Turn posterior samples into integrals."""

from amsip._checks import NumericalError as NumericalError
from amsip.discrepancy import mmd2 as mmd2
from amsip.discrepancy import witness as witness
from amsip.kernels import InverseMultiquadric as InverseMultiquadric
from amsip.kernels import Matern as Matern
from amsip.kernels import Octaves as Octaves
from amsip.kernels import Polynomial as Polynomial
from amsip.kernels import SquaredExponential as SquaredExponential
from amsip.kernels import Whitened as Whitened
from amsip.references.mixture import Mixture as Mixture
from amsip.references.samples import Samples as Samples
from amsip.rules import Rule as Rule
from amsip.seeds import draw_seeds as draw_seeds
from amsip.weights import optimal_weights as optimal_weights
from amsip.weights import uniform_weights as uniform_weights
from amsip.whitening import Whitening as Whitening
