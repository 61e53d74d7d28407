"""A groundwater example, end to end: draws of a posterior, a rule, the answers, one page."""

import json
from pathlib import Path

from torch import Tensor

import amsip
from amsip._disk import write_atomically
from amsip.bench.base import table
from amsip.demo.aquifer import NAMES
from amsip.demo.experiment import BUDGETS, Comparison, compare, shipped_draws
from amsip.demo.story import write_page
from amsip.demo.wellfield import QUANTITIES, predict


def write_demo(folder: Path, *, repeats: int = 64) -> str:
    """Write `report.html`, `rule.npz` and `results.json` into a folder; return the lines to show."""
    samples = shipped_draws().values
    pool = predict(samples)
    comparisons = [compare(samples, predict, budget, repeats) for budget in BUDGETS]
    last = comparisons[-1]
    folder.mkdir(parents=True, exist_ok=True)
    amsip.save_rule(last.rule, folder / "rule.npz", names=NAMES, notes={"made by": "amsip demo"})
    results = {"repeats": repeats, "draws": len(samples), "budgets": [_summary(c, pool) for c in comparisons]}
    write_atomically(folder / "results.json", json.dumps(results, indent=1).encode() + b"\n")
    write_atomically(folder / "report.html", write_page(samples, pool, comparisons, repeats).encode())
    rows = [
        (name, last.budget, f"{worth:.0f}")
        for name, worth in zip(QUANTITIES, last.equivalent_draws(pool).tolist(), strict=True)
    ]
    return f"{table(('question', 'model runs', 'worth in draws'), rows)}\n\n{(folder / 'report.html').resolve()}"


def _summary(comparison: Comparison, pool: Tensor) -> dict[str, object]:
    of_rule, of_draws = comparison.errors(pool)
    worth = comparison.equivalent_draws(pool)
    return {
        "nodes": comparison.budget,
        "milliseconds": round(comparison.milliseconds, 2),
        "quantities": {
            name: {
                "all draws": float(pool[:, k].mean()),
                "error of rules": float(of_rule[k]),
                "error of plain draws": float(of_draws[k]),
                "equivalent draws": float(worth[k]),
            }
            for k, name in enumerate(QUANTITIES)
        },
    }
