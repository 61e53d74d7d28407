"""fig:dq-cnf-recon: the truth, the flow's mean, the quadrature's mean and its spread, on observations held out."""

import statistics
from typing import TYPE_CHECKING

from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.flow_cells import Charted, shown
from amsip.paper.flow_images import NODES, POOL, QUICK_POOL, arms_on_images, unpacked
from amsip.paper.flow_maps import flow_map, map_file
from amsip.paper.flow_posterior import SEEDS, evaluation, latent, sizes_of
from amsip.paper.judge import several, verdict_of
from amsip.paper.parts import kept
from amsip.pretrained import load_card

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "truth": "truth",
    "flow mean": "flow mean",
    "latent mean": "... in the latent",
    "quadrature mean": "quadrature mean",
    "quadrature std": "quadrature std",
    "full std": "flow std, whole",
}
NEAR_ZERO, SMALL = 0.02, 0.05
CALIBRATED, LOOSE = 0.1, 0.25
CLEARLY = 1.1


def compute(run: Run) -> Data:
    """Means and spreads of every arm on three observations that no other experiment uses."""
    space = latent(run)
    charted = shown(run, Charted.of(evaluation(run), space))
    for seed in SEEDS:
        flow_map(run, seed)
    digests = [load_card(map_file(run, seed)).sha256 for seed in SEEDS]
    stamp = {"maps": digests, "m": NODES, "pool": QUICK_POOL if run.quick else POOL, "bank": sizes_of(run).bank}
    found = kept(run, "flow-images", stamp, lambda: arms_on_images(run, charted, space))
    return {**found, "m": NODES, "pool": stamp["pool"], "bank": stamp["bank"], "retained": space.retained}


def draw(data: Data, figure: "Figure") -> None:
    """A row an observation; images on one scale, spreads on a scale of their own a row."""
    figure.set_size_inches(8.4, 4.3)
    grid = figure.subplots(len(data["cases"]), len(PANELS), squeeze=False)
    for row, case in zip(grid, data["cases"], strict=True):
        images = {name: unpacked(case["panels"][name]).numpy() for name in PANELS}
        for axes, (name, image) in zip(row, images.items(), strict=True):
            is_std = name.endswith("std")
            top = image.max() if is_std else images["truth"].max()
            shown_image = axes.imshow(image, cmap="magma" if is_std else "gray", vmin=0.0, vmax=top, origin="lower")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[["top", "right"]].set_visible(True)
            if is_std:
                bar = figure.colorbar(shown_image, ax=axes, fraction=0.046, pad=0.03)
                bar.ax.tick_params(labelsize=6)
                if name == list(PANELS)[-1]:
                    bar.set_label("pixel deviation", fontsize=7)
    for number, axes in enumerate(grid[:, 0], start=1):
        axes.set_ylabel(f"observation {number}", fontsize=8)
    for axes, title in zip(grid[0], PANELS.values(), strict=True):
        axes.set_title(title, fontsize=8)


def headline(data: Data) -> str:
    """The result in one line."""
    ours, draws = _median(data, WARM, "error"), _row(data, FLOOR)["error"]
    return (
        f"At M = {data['m']} the quadrature's mean image is within {ours:.2%} of the flow's (L2), that of as many "
        f"draws within {draws:.2%}; its pooled spread is {_median(data, WARM, 'std'):.2f} of the flow's in the latent."
    )


def _row(data: Data, arm: str) -> Data:
    return next(row for row in data["rows"] if row["arm"] == arm)


def _median(data: Data, arm: str, key: str) -> float:
    """The median over three trainings."""
    return statistics.median(row[key] for row in data["rows"] if row["arm"].startswith(arm))


def _others(data: Data, key: str) -> str:
    return ", ".join(f"{arm} {_row(data, arm)[key]:.2g}" for arm in (FLOOR, REWEIGHT, FINETUNED, UNIVERSAL))


def _mean(data: Data) -> Finding:
    error = _median(data, WARM, "error")
    low, high = _row(data, f"{WARM} {SEEDS[0]}")["error_quartiles"]
    whole = _median(data, WARM, "whole_error")
    note = (
        f"L2 distance of the mean of one emission to the flow's in the latent, over the norm of the whole; median over "
        f"{len(data['cases'])} observations, {data['pool']} emissions, three trainings; interval: quartiles. To the "
        f"flow's whole mean, what lies outside the latent included: {whole:.2g}. Others, in the latent: "
        f"{_others(data, 'error')}. Pooled over the emissions {_median(data, WARM, 'pooled_error'):.2g} (draws "
        f"{_row(data, FLOOR)['pooled_error']:.2g}). The norm is mostly that of the mean phantom, so a small number "
        "says little by itself: see the next line."
    )
    return Finding(verdict_of(max(error, whole) < NEAR_ZERO, error < NEAR_ZERO), error, (low, high), note)


def _control(data: Data) -> Finding:
    ours, draws = _median(data, WARM, "spreads"), _row(data, FLOOR)["spreads"]
    note = (
        f"Distance of the means in units of the posterior's own deviation, one pass over as many draws: {ours:.3f} and "
        f"{draws:.3f} (1 / root M is {data['m'] ** -0.5:.3f}). Others: {_others(data, 'spreads')}. So one pass has the "
        f"mean of {(draws / ours) ** 2:.1f} times as many draws."
    )
    return Finding(verdict_of(ours < 0.5 * draws, ours < draws), ours / draws, None, note)


def _spread(data: Data) -> Finding:
    std = _median(data, WARM, "std")
    correlations = [case["correlation"] for case in data["cases"]]
    note = (
        f"Mean spread of a pixel from {data['pool']} pooled emissions over the flow's own in the latent; "
        f"correlation of the maps {several(correlations)}. Others: {_others(data, 'std')}. The variance of one "
        f"emission is {_median(data, WARM, 'trace'):.2f} of the posterior's; draws {_row(data, FLOOR)['trace']:.2f}."
    )
    return Finding(verdict_of(abs(std - 1.0) < CALIBRATED, abs(std - 1.0) < LOOSE), std, None, note)


def _geometry(data: Data) -> Finding:
    ratios = [case["edges"]["blind"] / case["edges"]["seen"] for case in data["cases"]]
    flat = [case["edges"]["blind"] / case["edges"]["elsewhere"] for case in data["cases"]]
    full = [case["full_edges"]["blind"] / case["full_edges"]["seen"] for case in data["cases"]]
    note = (
        f"Mean quadrature spread on edges of the truth that no ray runs along over that on edges that rays run along, "
        f"least of {len(ratios)} observations; all {several(ratios)}; over that away from edges {several(flat)}. The "
        f"same of the flow's whole spread, which the rank does not cut: {several(full)}; there every edge is uncertain."
    )
    inside = min(ratios) > CLEARLY and min(flat) > CLEARLY
    return Finding(verdict_of(inside and min(full) > CLEARLY, inside), min(ratios), None, note)


def _truncation(data: Data) -> Finding:
    parts = {name: [case[name] for case in data["cases"]] for name in ("truncation", "flow", "method")}
    sums = [sum(values) for values in zip(*parts.values(), strict=True)]
    shares = {name: [a / b for a, b in zip(values, sums, strict=True)] for name, values in parts.items()}
    whole = [case["full_over_latent"] for case in data["cases"]]
    note = (
        f"Squared distance from truth to quadrature mean that lies outside the {data['retained']:.0%} of variance "
        f"kept, as a share: {several(shares['truncation'])}; the flow's mean against the truth within it "
        f"{several(shares['flow'])}; the quadrature against the flow {several(shares['method'])}. The whole spread is "
        f"{several(whole)} times that in the latent."
    )
    least = min(shares["truncation"])
    small = max(shares["method"]) < SMALL
    return Finding(verdict_of(least > 0.5 and small, max(shares["truncation"]) > 0.5), least, None, note)


PLACE = "section 7.4, fig:dq-cnf-recon"
EXPERIMENT = Experiment(
    label="dq-cnf-recon",
    title="Reconstructions by the flow and by the quadrature of it",
    minutes=16.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "cnf-recon-mean",
            "The quadrature's mean is the flow's posterior mean, to a relative error near zero.",
            PLACE,
            f"median relative L2 distance, M = {NODES}; near zero is under {NEAR_ZERO:g}, latent and whole",
            _mean,
        ),
        Claim(
            "cnf-recon-mean-against-draws",
            "That is the quadrature's merit: an equal-weight mean of as many draws is further away.",
            PLACE,
            "distance of the means, one pass over as many draws; holds under a half",
            _control,
        ),
        Claim(
            "cnf-recon-spread",
            "The weighted spread of pooled emissions is the posterior's per-pixel uncertainty.",
            "section 7.4, remark 3",
            "mean pooled spread of a pixel over the flow's in the latent",
            _spread,
        ),
        Claim(
            "cnf-recon-geometry",
            "The uncertainty concentrates on boundaries that the limited angles leave uninformed.",
            PLACE,
            "spread on edges no ray runs along over that on edges seen",
            _geometry,
        ),
        Claim(
            "cnf-recon-truncation",
            "The detail that is absent is cut by the rank of the latent; it is no error of the method.",
            PLACE,
            "share of the squared distance to the truth that lies outside the latent",
            _truncation,
        ),
    ),
)
