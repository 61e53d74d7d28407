"""Controls of the groundwater runs: what the readings hold, all 1024 coordinates, and the iterated mean shift."""

from collections.abc import Sequence

import torch

from amsip.bandwidths import log_bandwidth, median_bandwidth
from amsip.kernels import Kernel, Matern, SquaredExponential
from amsip.maps.base import NodeMap
from amsip.maps.meanshift import MeanShift
from amsip.maps.refine import RefineStep, refine
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.frontier import BOX, DAMPING, STEPS
from amsip.paper.groundwater import SHARP, Groundwater, seed_sets
from amsip.problems.toys import BANDWIDTH_DRAWS

RANK_FIELDS = 400
NEGLIGIBLE = 1e-10
AMBIENT_QUERIES, AMBIENT_NODES = 4, 32
PRINTED, MATERN, LARGER, PLAIN = "as printed", "Matern kernel", "twice the nodes", "plain median"


def drives(ground: Groundwater) -> Data:
    """The rank of the noise-free readings, and how well a linear regression finds the field from some of the drives."""
    problem = ground.problem
    clean = problem.forward(ground.coefficients[:RANK_FIELDS].double())
    spectrum = torch.linalg.svdvals(clean - clean.mean(0))
    variances = ground.components[2]
    sets = {"1": [0], "2": [0, problem.drives // 2], "4": range(0, problem.drives, 2), "8": range(problem.drives)}
    return {
        "readings": problem.readings,
        "fields": len(clean),
        "rank": int((spectrum > NEGLIGIBLE * spectrum[0]).sum()),
        "signal": float(clean.std(0).mean()),
        "noise": problem.noise,
        "above_noise": int((variances > 2.0 * problem.noise**2).sum()),
        "regression": {name: regression(ground, list(chosen))["r2"] for name, chosen in sets.items()},
    }


def regression(ground: Groundwater, chosen: Sequence[int]) -> Data:
    """Least squares from the readings of some drives to the latent, fitted on the atoms, scored on the other rows.

    Arguments:
        ground: The bank.
        chosen: The drives that are used.

    Returns:
        `r2` over all latent coordinates, `worst` of one, and the `residual` deviation of each.
    """
    atoms = ground.sizes.atoms
    # two numbers a well hold all that several drives tell: the least-squares mix of their readings
    readings = ground.readings.double().unflatten(-1, (ground.problem.drives, -1))[:, list(chosen)]
    unit = torch.linalg.pinv(ground.problem.directions[list(chosen)]) @ readings
    design = torch.nn.functional.pad(unit.flatten(1), (0, 1), value=1.0)
    # one drive tells one number a well and fills two columns with it: the minimum-norm solution does not mind
    fit = torch.linalg.lstsq(design[:atoms], ground.latent[:atoms], driver="gelsd").solution
    predicted, truth = (design @ fit)[atoms:], ground.latent[atoms:]
    errors, total = (predicted - truth).square(), truth.square()
    return {
        "r2": float(1.0 - errors.sum() / total.sum()),
        "worst": float((1.0 - errors.sum(0) / total.sum(0)).min()),
        "residual": errors.mean(0).sqrt(),
        "predicted": predicted,
    }


def ambient(run: Run, ground: Groundwater) -> list[Data]:
    """Reweighting and moving in all coefficients against the informed 32, at the log rule and at the plain median."""
    queries, m = (2, 8) if run.quick else (AMBIENT_QUERIES, AMBIENT_NODES)
    asked = ground.features[ground.queries][:queries]
    rows = []
    for name, points in (("informed", ground.latent), ("ambient", ground.coefficients.double())):
        reference = ground.conditional(SHARP, points).given(asked)
        for rule, bandwidth in (("log rule", log_bandwidth), ("plain median", median_bandwidth)):
            run.report(f"groundwater, {name} kernel at the {rule}")
            kernel = SquaredExponential(float(bandwidth(points[:BANDWIDTH_DRAWS])))
            maps = {arms.FLOOR: None, arms.REWEIGHT: None, arms.FINETUNED: arms.finetune}
            found = arms.compare(seed_sets(reference, m, 1)[:, 0], reference.embed(kernel), maps)
            floor = found[arms.FLOOR]["scores"]
            row = {arm: float((part["scores"] / floor).median()) for arm, part in found.items() if arm != arms.FLOOR}
            rows.append(row | {"space": name, "rule": rule, "bandwidth": kernel.bandwidth, "m": m, "queries": queries})
    return rows


def refinements(run: Run, ground: Groundwater, net: NodeMap) -> list[Data]:
    """The damped mean shift from the emission on the sharp conditional, under the variations that the paper tried.

    Arguments:
        run: Quick or not.
        ground: The bank.
        net: The network that emits.

    Returns:
        A row a variation: medians over queries of score, rank of the Gram and effective sample size, step by step, the
        last two over M; and `ratio`, the last score over that of the emission, with an interval.
    """
    printed, plain = ground.kernel, SquaredExponential(float(median_bandwidth(ground.latent[:BANDWIDTH_DRAWS])))
    variations: dict[str, tuple[Kernel, int]] = {
        PRINTED: (printed, 8 if run.quick else 32),
        LARGER: (printed, 16 if run.quick else 64),
        MATERN: (Matern(printed.bandwidth), 8 if run.quick else 32),
        PLAIN: (plain, 8 if run.quick else 32),
    }
    posterior = ground.posterior(SHARP)
    rows = []
    for name, (kernel, m) in variations.items():
        run.report(f"groundwater, mean shift: {name}")
        embedding, seeds = posterior.embed(kernel), seed_sets(posterior, m, 1)[:, 0]
        with torch.no_grad():
            emitted = net(seeds, embedding)
        trace: list[RefineStep] = []
        shift = MeanShift(steps=8 if run.quick else STEPS, damping=DAMPING, bounds=BOX)
        refine(emitted, embedding, shift, callback=trace.append)
        scores = torch.stack([step.mmd2 for step in trace])
        rows.append(
            {
                "variation": name,
                "m": m,
                "steps": shift.steps,
                "scores": arms.middle(scores),
                "rank": arms.middle(torch.stack([step.gram_rank for step in trace])) / m,
                "ess": arms.middle(torch.stack([step.ess for step in trace])) / m,
                "ratio": arms.middle(scores[-1]) / arms.middle(scores[0]),
                "ratio_interval": list(arms.ratio_interval(scores[-1], scores[0])),
            }
        )
    return rows
