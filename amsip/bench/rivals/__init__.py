"""What others do with the same draws, one file a family."""

from amsip.bench.rivals.flow import SOBOL_FLOW
from amsip.bench.rivals.foreign import COMPRESS, HERDING, K_MEANS, KERNEL_THINNING, RECOMBINATION
from amsip.bench.rivals.greedy import GREEDY
from amsip.bench.rivals.particles import PARTICLES
from amsip.bench.rivals.regression import LINEAR_CONTROL, QUADRATIC_CONTROL
from amsip.bench.rivals.support import SUPPORT_POINTS

RIVALS = (
    GREEDY,
    RECOMBINATION,
    KERNEL_THINNING,
    COMPRESS,
    HERDING,
    K_MEANS,
    SUPPORT_POINTS,
    PARTICLES,
    LINEAR_CONTROL,
    QUADRATIC_CONTROL,
    SOBOL_FLOW,
)
