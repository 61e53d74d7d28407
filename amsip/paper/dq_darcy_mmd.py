"""fig:dq-darcy-mmd: the discrepancy against the number of nodes on held-out groundwater queries."""

import itertools
from typing import TYPE_CHECKING

import torch

from amsip.paper.arms import DESCENT, FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM, row_of
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.groundwater import BROAD, READINGS, SHARP, Groundwater, fit_config, groundwater, groundwater_map
from amsip.paper.groundwater_cells import ratios, reading_rows
from amsip.paper.groundwater_controls import PLAIN, PRINTED, ambient, drives, refinements
from amsip.paper.judge import below_floor, several, verdict_of
from amsip.paper.parts import kept
from amsip.paper.style import arm_curve, budget_axes, shared_legend
from amsip.paper.trained import weights_file
from amsip.pretrained import load_card
from amsip.problems.toys import darcy_latent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {SHARP: "$\\sigma_y$: half the log rule", BROAD: "$\\sigma_y$: half the plain median"}
BUYS_NOTHING = 0.95


def compute(run: Run) -> Data:
    """Both readings of the conditional, what the readings hold, and the kernel in all coordinates."""
    ground = groundwater(run)
    sizes = {"atoms": ground.sizes.atoms, "training": ground.sizes.training, "queries": ground.sizes.held_out}
    rows = {reading: reading_rows(run, ground, reading) for reading in READINGS}
    net = groundwater_map(run, ground, SHARP)
    stamp = {**sizes, "map": load_card(weights_file(run, f"darcy-{SHARP}")).sha256}
    return {
        "bandwidth": ground.kernel.bandwidth,
        "sizes": sizes,
        "steps": {reading: fit_config(run, reading).steps for reading in READINGS},
        "conditional": {reading: _sharpness(ground, reading) for reading in READINGS},
        "rows": rows,
        "refined": kept(run, "darcy-refined", stamp, lambda: {"rows": refinements(run, ground, net)})["rows"],
        "drives": kept(run, "darcy-drives", sizes, lambda: drives(ground)),
        "ambient": kept(run, "darcy-ambient", sizes, lambda: {"rows": ambient(run, ground)})["rows"],
    }


def draw(data: Data, figure: "Figure") -> None:
    """A panel a reading."""
    figure.set_size_inches(7.4, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (reading, rows) in zip(panels, data["rows"].items(), strict=True):
        budget_axes(axes, sorted({row["m"] for row in rows}), ylabel="MMD²" if axes is panels[0] else "")
        for arm in (FLOOR, REWEIGHT, FINETUNED, UNIVERSAL, DESCENT, WARM):
            arm_curve(axes, rows, arm, floor=arm == WARM)
        found = data["conditional"][reading]
        axes.set_title(f"{TITLES[reading]}: {found['ess']:.0f} effective atoms")
    shared_legend(figure, panels[0], columns=3)


def headline(data: Data) -> str:
    """The result in one line."""
    parts = [f"{several(ratios(rows, WARM))} ({reading})" for reading, rows in data["rows"].items()]
    return f"One pass over the floor at M = {_budgets(data)}: {'; '.join(parts)}."


def _sharpness(ground: Groundwater, reading: str) -> Data:
    conditional = ground.conditional(reading)
    kept_atoms = conditional.truncation(ground.features[ground.queries])
    quartiles = kept_atoms.ess.quantile(torch.tensor([0.25, 0.75], dtype=kept_atoms.ess.dtype))
    return {
        "sigma_y": conditional.sigma_y,
        "ess": kept_atoms.ess.median(),
        "ess_quartiles": quartiles,
        "atoms": kept_atoms.atoms.double().median(),
        "share": kept_atoms.share.median(),
    }


def _budgets(data: Data) -> list[int]:
    return sorted({row["m"] for row in data["rows"][SHARP]})


def _pool(data: Data, reading: str) -> str:
    found, sizes = data["conditional"][reading], data["sizes"]
    return (
        f"{sizes['queries']} held-out queries; a conditional keeps {found['atoms']:.0f} of {sizes['atoms']} atoms with "
        f"{found['share']:.0%} of the responsibility ({found['ess']:.0f} effective), and is the exact target."
    )


def _below(reading: str, data: Data) -> Finding:
    rows = data["rows"][reading]
    trained = f"Network of {data['steps'][reading]} steps. "
    return below_floor(rows, WARM, f"By M: {several(ratios(rows, WARM))}. {trained}{_pool(data, reading)}")


def _deepens(data: Data) -> Finding:
    values = {reading: ratios(rows, WARM) for reading, rows in data["rows"].items()}
    sharp = values[SHARP]
    monotone = all(b < a for a, b in itertools.pairwise(sharp))
    note = "Ratio to the floor at the largest M over that at the smallest; by M: " + "; ".join(
        f"{reading} {several(row)}" for reading, row in values.items()
    )
    return Finding(verdict_of(monotone, sharp[-1] < sharp[0]), sharp[-1] / sharp[0], None, note + ".")


def _levers(data: Data) -> Finding:
    rows = data["rows"][SHARP]
    gaps = [row_of(rows, WARM, m)["median"] / row_of(rows, REWEIGHT, m)["median"] for m in _budgets(data)]
    note = (
        f"One pass over reweighting alone by M: {several(gaps)}; reweighting over the floor: "
        f"{several(ratios(rows, REWEIGHT))}. Repeated seeds: "
        f"{several([row_of(rows, FLOOR, m)['repeated'] for m in _budgets(data)])}."
    )
    return Finding(verdict_of(max(gaps) < BUYS_NOTHING, min(gaps) < BUYS_NOTHING), max(gaps), None, note)


def _optimum(data: Data) -> Finding:
    rows = data["rows"][SHARP]
    deep = {arm: ratios(rows, arm) for arm in (WARM, FINETUNED, UNIVERSAL, DESCENT)}
    worst = max(warm / tuned for warm, tuned in zip(deep[WARM], deep[FINETUNED], strict=True))
    note = "Largest ratio, one pass over 150 steps of Adam a set. Ratios to the floor by M: " + "; ".join(
        f"{arm} {several(values)}" for arm, values in deep.items()
    )
    return Finding(verdict_of(worst <= 1.0, min(deep[WARM]) <= min(deep[FINETUNED])), worst, None, note + ".")


def _stalls(data: Data) -> Finding:
    rows = {row["variation"]: row for row in data["refined"]}
    own = rows[PRINTED]
    low, high = own["ratio_interval"]
    tried = [row["ratio_interval"] for name, row in rows.items() if name != PLAIN]
    note = (
        f"Median score after {own['steps']} steps of the damped mean shift over that of the emission: "
        + "; ".join(
            f"{name} {row['ratio']:.2g}, {max(row['scores']) / row['scores'][0]:.2g} on the way"
            for name, row in rows.items()
        )
        + ". The bandwidth of the plain median is ours; the others are those that the paper tried."
    )
    # the other variations cannot save the one that is printed
    verdict = verdict_of(all(pair[0] >= 1.0 for pair in tried), high >= 1.0)
    return Finding(verdict, own["ratio"], (low, high), note)


def _collapses(data: Data) -> Finding:
    rows = {row["variation"]: row for row in data["refined"]}
    own = rows[PRINTED]
    note = (
        "Rank of the Gram over M, eigenvalues above 1e-8, from the emission to the end: "
        + "; ".join(f"{name} {row['rank'][0]:.2f} to {row['rank'][-1]:.2f}" for name, row in rows.items())
        + "; effective sample size over M: "
        + "; ".join(f"{name} {row['ess'][0]:.2f} to {row['ess'][-1]:.2g}" for name, row in rows.items())
        + ". Seeds that repeat an atom are moved alike and leave the emission's own Gram short of rank."
    )
    lost, thin = own["rank"][-1] < 0.5 * own["rank"][0], own["ess"][-1] < 0.5 * own["ess"][0]
    return Finding(verdict_of(lost, thin), own["rank"][-1], None, note)


def _wall(data: Data) -> Finding:
    rows = {(row["space"], row["rule"]): row for row in data["ambient"]}
    found = {key: row[FINETUNED] / row[REWEIGHT] for key, row in rows.items()}
    walled, free = found["ambient", "log rule"], found["ambient", "plain median"]
    floors = [rows[space, "log rule"][arm] for space in ("ambient", "informed") for arm in (REWEIGHT, FINETUNED)]
    note = (
        f"At the paper's rule moving per set leaves {walled:.2f} of the reweighted score in all coefficients and "
        f"{found['informed', 'log rule']:.2f} in the informed 32; at the plain median {free:.2g} and "
        f"{found['informed', 'plain median']:.2g}. Over the floor, reweighted and moved: all {several(floors[:2])}, "
        f"informed {several(floors[2:])}. The bandwidth rule decides, not the dimension alone."
    )
    return Finding(verdict_of(walled > BUYS_NOTHING and free > BUYS_NOTHING, walled > BUYS_NOTHING), walled, None, note)


def _eight_drives(data: Data) -> Finding:
    found = data["drives"]
    r2 = found["regression"]
    note = (
        f"Rank of the {found['readings']} noise-free readings of {found['fields']} fields. The pressure is linear in "
        f"(a, b): two drives tell all, eight only average the noise. Linear regression of 32 coefficients, held-out "
        f"R²: one drive {r2['1']:.3f}, two {r2['2']:.3f}, four {r2['4']:.3f}, eight {r2['8']:.3f}."
    )
    return Finding(verdict_of(found["rank"] == found["readings"]), float(found["rank"]), None, note)


def _bandwidth(data: Data) -> Finding:
    printed = darcy_latent().printed
    assert printed is not None
    error = abs(data["bandwidth"] / printed - 1.0)
    note = f"Log rule on 4000 standardised atoms of the bank, against {printed} in the table; our prior family."
    return Finding(verdict_of(error < 0.005, error < 0.02), data["bandwidth"], None, note)


PLACE = "section 7.6, fig:dq-darcy-mmd"
EXPERIMENT = Experiment(
    label="dq-darcy-mmd",
    title="Groundwater: one network over held-out observations, under both readings of the conditional",
    minutes=40.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "darcy-below-floor",
            "On the groundwater posterior one forward pass is below the floor at every budget.",
            PLACE,
            "largest ratio of medians, one pass over floor; intervals over queries",
            lambda data: _below(SHARP, data),
        ),
        Claim(
            "darcy-below-floor-broad",
            "It is below the floor with the other reading of 'half the median heuristic' for the readings, too.",
            "appendix C.3",
            "largest ratio of medians, one pass over floor; intervals over queries",
            lambda data: _below(BROAD, data),
        ),
        Claim(
            "darcy-margin-deepens",
            "The margin deepens as the number of nodes grows.",
            PLACE,
            "ratio to the floor at the largest M over that at the smallest",
            _deepens,
        ),
        Claim(
            "darcy-levers-separate",
            "In the informed latent the two levers separate: moving gains beyond reweighting.",
            "section 7.6",
            f"largest ratio of medians, one pass over reweighting alone; a gain is under {BUYS_NOTHING:g}",
            _levers,
        ),
        Claim(
            "darcy-one-pass-is-the-result",
            "The one pass is the result here: no refinement of it is to be had.",
            "section 7.7",
            "one pass over the per-set optimum from the same seeds",
            _optimum,
        ),
        Claim(
            "darcy-refinement-stalls",
            "The iterated mean shift does not descend below the emission on this sharp reference.",
            "section 7.7, remark 5",
            "median score after the last step over the emission's; intervals over queries",
            _stalls,
        ),
        Claim(
            "darcy-refinement-collapses",
            "It contracts the nodes until the Gram approaches rank one.",
            "section 7.7, remark 5",
            "rank of the Gram over M after the last step",
            _collapses,
        ),
        Claim(
            "darcy-ambient-wall",
            "In all 1024 coefficients the kernel loses contrast and moving the nodes buys nothing.",
            "section 7.6, remark 4",
            "moved and reweighted nodes over reweighted seeds, M = 32",
            _wall,
        ),
        Claim(
            "darcy-eight-drives",
            "Eight boundary drives contribute independent constraints.",
            "section 7.6, the forward model",
            "rank of the noise-free readings; regression from fewer drives",
            _eight_drives,
        ),
        Claim(
            "darcy-bandwidth",
            "The bandwidth of the groundwater latent is 1.9418.",
            "appendix C.3, tab:repro",
            "the rule behind the table's other bandwidths, on pooled standardised atoms",
            _bandwidth,
        ),
    ),
)
