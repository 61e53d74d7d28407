"""Whether the errors a rule states are the errors it makes."""

from jaxtyping import Float64
from torch import Tensor

from amsip.bench.posteriors.yardstick import Split
from amsip.defaults import default_kernel
from amsip.errors import estimate
from amsip.references.samples import Samples


def stated_errors(
    split: Split, nodes: Float64[Tensor, "r m d"], weights: Float64[Tensor, "r m"]
) -> dict[str, dict[str, float]]:
    """Per family: how often the true error is within the stated one and within twice it, and the draws it is worth.

    The truth is the average over the pool, so that the stated error is the one against the reference in hand; the
    draws count the noise of the pool as well, in what is stated and in what is true.

    Arguments:
        split: The posterior.
        nodes: The nodes of independent rules, made with the default kernel.
        weights: Their weights.
    """
    reference = Samples(split.pool)
    embedding = reference.embed(default_kernel(reference))
    found = estimate(nodes, weights, split.integrands(nodes), embedding)
    truth, variance, n = split.truth["pool"], split.variance["pool"], split.pool.shape[-2]
    error = (found.value - truth).abs()
    assert found.quadrature_error is not None
    assert found.equivalent_draws is not None
    within = {bound: (error <= bound * found.quadrature_error).to(error) for bound in (1, 2)}
    true_draws = 1.0 / (error.square().mean(0) / variance + 1.0 / n)
    ratio = found.equivalent_draws / true_draws
    return {
        family: {
            "within 1": within[1][:, columns].mean().item(),
            "within 2": within[2][:, columns].mean().item(),
            "stated over true draws": ratio[:, columns].median().item(),
        }
        for family, columns in split.integrands.families.items()
    }
