"""Why the default map ends above the optimum where the discrepancy is tiny: steps, ridge, or rounding?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from amsip.bench.base import markdown
from amsip.bench.toys.arms import FEW_SETS, moved
from amsip.bench.toys.measure import bench_toys
from amsip.defaults import FURTHER_STEPS, STEPS, universal_descent, universal_network
from amsip.discrepancy import mmd2
from amsip.problems.toys import Toy
from amsip.weights import JITTER, optimal_weights, uniform_weights

BUDGETS = (16, 32, 64)
MORE_STEPS, LESS_JITTER = 64, 1e-14
EPSILON = torch.finfo(torch.float64).eps
USUAL, MORE = "as it is", "more steps"
ENDS = (USUAL, MORE)
# what is changed of the descent that ends the default map
VARIANTS: dict[str, dict] = {
    USUAL: {},
    MORE: {"steps": MORE_STEPS},
    "less ridge": {"jitter": LESS_JITTER},
    "more steps, less ridge": {"steps": MORE_STEPS, "jitter": LESS_JITTER},
    "more steps, Newton's model too": {"steps": MORE_STEPS, "newton": True},
}


def endings(toy: Toy) -> dict[str, object]:
    """The default map on a toy, its descent changed in one way at a time.

    Arguments:
        toy: The target.

    Returns:
        By budget: medians of the discrepancy with the usual ridge, of the share that the ridge may hide, and the scale.
    """
    embedding = toy.reference().embed(toy.kernel)
    found = {}
    for m in BUDGETS:
        seeds = toy.seed_sets(m, FEW_SETS)
        start = moved(universal_network, seeds, embedding)
        rows = {}
        for name, changed in VARIANTS.items():
            nodes = moved(replace(universal_descent, **changed), start, embedding)
            usual, less = (optimal_weights(nodes, embedding, jitter=j) for j in (JITTER, LESS_JITTER))
            rows[name] = {
                "mmd2": _median(mmd2(nodes, usual, embedding)),
                "mmd2_less_ridge": _median(mmd2(nodes, less, embedding)),
                "ridge": _median(JITTER * usual.square().sum(-1)),
            }
        found[m] = {
            "variants": rows,
            "floor": _median(mmd2(seeds, uniform_weights(seeds), embedding)),
            "height": float(embedding.kernel.gram(seeds).diagonal(dim1=-2, dim2=-1).mean()),
        }
    return {"toy": toy.name, "sets": FEW_SETS, "budgets": found}


PARTS: dict[str, Callable[[], dict[str, object]]] = {
    "gaussian-2": lambda: endings(bench_toys()["gaussian-2-whitened"]),
    "banana": lambda: endings(bench_toys()["banana-whitened"]),
    "gaussian-2-plain": lambda: endings(bench_toys()["gaussian-2"]),
    "banana-plain": lambda: endings(bench_toys()["banana"]),
}


def section(parts: Sequence[dict], optima: Mapping[tuple[str, int], float]) -> str:
    """What was measured, as a table and in words; nothing without a measurement.

    Arguments:
        parts: What `endings` gave.
        optima: The median discrepancy of the optimum, by toy and budget.

    Example:
        >>> section([], {})
        ''
    """
    cells = [
        (part["toy"], int(m), cell, optima[part["toy"], int(m)])
        for part in parts
        for m, cell in part["budgets"].items()
        if (part["toy"], int(m)) in optima
    ]
    if not cells:
        return ""
    rows = [
        (f"{toy} M={m}", f"{optimum:.2g}", *(f"{cell['variants'][name]['mmd2'] / optimum:.3g}" for name in VARIANTS))
        for toy, m, cell, optimum in cells
    ]
    return "\n\n".join(
        [
            "## Why the default map ends above the optimum on the plane",
            f"The default map is the network, {STEPS} steps of descent, and {FURTHER_STEPS} more where a posterior is "
            f"unlike those of the training. Here the network with {STEPS} or {MORE_STEPS} steps, with a ridge of "
            f"{LESS_JITTER:.0e} instead of {JITTER:.0e} in their weights, and with Newton's model beside that of Gauss "
            f"and Newton; {parts[0]['sets']} seed sets, medians of MMD² under the usual ridge as ratios to the "
            "optimum's, which is the best of four long descents of each set.",
            markdown(("over the optimum", "MMD² of the optimum", *map(_shown, VARIANTS)), rows),
            _words(cells),
        ]
    )


def _shown(name: str) -> str:
    """A variant as the page calls it: the number of steps first."""
    if name == USUAL:
        return f"{STEPS} steps"
    return name.replace(MORE, f"{MORE_STEPS} steps") if MORE in name else f"{STEPS} steps, {name}"


def _words(cells: Sequence[tuple[str, int, dict, float]]) -> str:
    gains = {
        name: [cell["variants"][USUAL]["mmd2"] / cell["variants"][name]["mmd2"] for _, _, cell, _ in cells]
        for name in VARIANTS
        if name != USUAL
    }
    ranked = sorted(gains.items(), key=lambda item: -max(item[1]))
    told = "; ".join(f"{_shown(name)}, {min(found):.2g} to {max(found):.3g}" for name, found in ranked)
    below = [f"{toy} {m}" for toy, m, cell, optimum in cells if cell["variants"][MORE]["mmd2"] < optimum]
    _, _, last, optimum = min(cells, key=lambda cell: cell[3])
    ridges = [max(c["variants"][name]["ridge"] / c["variants"][name]["mmd2"] for _, _, c, _ in cells) for name in ENDS]
    return (
        f"By which factor each lowers what {STEPS} steps leave, the most first: {told}. After {MORE_STEPS} steps it is "
        f"below the optimum itself in {len(below)} of {len(cells)} cells"
        + (f" ({', '.join(below)}), where the optimum's own descents stopped too early" if below else "")
        + f". The smallest optimum is {optimum / last['height']:.0e} of the kernel's height and "
        f"{optimum / last['floor']:.0e} of the floor, {optimum / last['height'] / EPSILON:.0e} times the rounding of "
        f"double precision; the ridge adds to the objective at most {ridges[0]:.1g} of MMD² after {STEPS} steps and "
        f"{ridges[1]:.1g} after {MORE_STEPS}."
    )


def _median(values: Tensor) -> float:
    return float(values.quantile(0.5))
