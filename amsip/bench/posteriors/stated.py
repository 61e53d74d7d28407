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
    draws count the noise of the pool as well, in what is stated and in what is true. Where the split holds out draws,
    the truth is the average over those instead: the stated error is then the whole standard error, to which the noise
    of the held-out average is added, for it is part of the difference.

    Arguments:
        split: The posterior.
        nodes: The nodes of independent rules, made with the default kernel.
        weights: Their weights.
    """
    reference = Samples(split.pool)
    found = estimate(nodes, weights, split.integrands(nodes), reference.embed(default_kernel(reference)))
    assert found.quadrature_error is not None
    assert found.equivalent_draws is not None
    unseen = len(split.held_out)
    truth = "held-out" if unseen else "pool"
    bound = (
        (found.standard_error.square() + split.variance[truth] / unseen).sqrt() if unseen else found.quadrature_error
    )
    error = (found.value - split.truth[truth]).abs()
    within = {times: (error <= times * bound).to(error) for times in (1, 2)}
    mean_square = (found.value - split.truth["pool"]).square().mean(0)
    ratio = found.equivalent_draws * (mean_square / split.variance["pool"] + 1.0 / len(split.pool))
    return {
        family: {
            "within 1": within[1][:, columns].mean().item(),
            "within 2": within[2][:, columns].mean().item(),
            "stated over true draws": ratio[:, columns].median().item(),
        }
        for family, columns in split.integrands.families.items()
    }
