"""fig:dq-darcy-recon: what the groundwater rules say about the field, and what the readings say about it."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.groundwater import BROAD, SHARP, SHOWN, groundwater, groundwater_map
from amsip.paper.groundwater_fields import COARSE, COMPONENTS, Fields, regression_name
from amsip.paper.groundwater_recon import BEST, COLUMNS, nodes_of, point_estimates, pool_of, pooled, single
from amsip.paper.judge import several, verdict_of
from amsip.paper.parts import kept
from amsip.paper.trained import weights_file
from amsip.pretrained import load_card

if TYPE_CHECKING:
    from matplotlib.figure import Figure

READING = regression_name(COMPONENTS[0])
CLOSE, HALF = 0.1, 0.5
NEAR_ONE = (0.9, 1.1)
ALIKE = 0.95


def compute(run: Run) -> Data:
    """One emission of every held-out query, pools of the three that are shown, and point estimates beyond the atoms."""
    ground = groundwater(run)
    net = groundwater_map(run, ground, SHARP)
    stamp = {
        "m": nodes_of(run),
        "pool": pool_of(run),
        "atoms": ground.sizes.atoms,
        "queries": ground.sizes.held_out,
        "map": load_card(weights_file(run, f"darcy-{SHARP}")).sha256,
    }
    fields = Fields(ground)
    return {
        **{key: stamp[key] for key in ("m", "pool", "atoms", "queries")},
        "single": kept(run, "darcy-single", stamp, partial(single, run, ground, fields, net)),
        "pooled": kept(run, "darcy-pooled", stamp, partial(pooled, run, ground, fields, net)),
        "estimates": kept(run, "darcy-estimates", stamp, partial(point_estimates, ground, fields)),
    }


def draw(data: Data, figure: "Figure") -> None:
    """A row a query: truth, regression, conditional mean, quadrature mean, deviation."""
    figure.set_size_inches(8.4, 4.3)
    panels = figure.subplots(SHOWN, len(COLUMNS))
    shown = data["pooled"]["images"]
    top = max(abs(value) for row in shown for value in row["true field"])
    spread = max(value for row in shown for value in row["pooled deviation"])
    for row, images in zip(panels, shown, strict=True):
        for axes, name in zip(row, COLUMNS, strict=True):
            looks: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -top, "vmax": top}
            if name == COLUMNS[-1]:
                looks = {"cmap": "viridis", "vmin": 0.0, "vmax": spread}
            size = int(len(images[name]) ** 0.5)
            image = axes.imshow(np.reshape(images[name], (size, size)).T, origin="lower", **looks)
            axes.set_xticks([])
            axes.set_yticks([])
            if name == COLUMNS[3]:
                field = image
    figure.colorbar(field, ax=panels[:, :4], label="log-permeability", shrink=0.8, location="left")
    figure.colorbar(image, ax=panels[:, 4], label="deviation", shrink=0.8)
    for axes, name in zip(panels[0], COLUMNS, strict=True):
        axes.set_title(name, fontsize=8.5)
    for number, axes in enumerate(panels[:, 0], start=1):
        axes.set_ylabel(f"query {number}")


def headline(data: Data) -> str:
    """The result in one line."""
    rows = data["estimates"]["rows"]
    return (
        f"One emission is {data['single'][WARM]['error']['median']:.0%} off the conditional mean field; that mean "
        f"explains {rows[SHARP]['r2']:.0%} of the latent, where a linear regression explains {rows[BEST]['r2']:.0%}."
    )


def _mean_matches(data: Data) -> Finding:
    rows, pools = data["single"], data["pooled"]["rows"]
    found = rows[WARM]["error"]
    note = (
        f"Median over {data['queries']} queries of one emission's error, M = {data['m']}, relative in the norm of the "
        f"conditional mean field; the same draws equally weighted {rows[FLOOR]['error']['median']:.2g}, reweighted "
        f"{rows[REWEIGHT]['error']['median']:.2g}, per-set optimum {rows[FINETUNED]['error']['median']:.2g}, universal "
        f"map {rows[UNIVERSAL]['error']['median']:.2g}. {data['pool']} emissions pooled: "
        f"{several(pools[WARM]['error'])} on the three shown."
    )
    low, high = found["interval"]
    return Finding(verdict_of(high < CLOSE, high < rows[FLOOR]["error"]["median"]), found["median"], (low, high), note)


def _pooling(data: Data) -> Finding:
    rows, many = data["pooled"]["rows"], data["pool"] * data["m"]
    errors = {arm: max(row["error"]) for arm, row in rows.items()}
    note = (
        f"Largest over the three shown queries of the pooled mean's relative error, {data['pool']} emissions of "
        f"{data['m']} nodes: the same {many} draws, equally weighted and not moved, {errors[FLOOR]:.2g}; universal map "
        f"{errors[UNIVERSAL]:.2g}. Pooling removes noise and keeps the bias of the emission: above the draws it would "
        "have paid to leave them alone."
    )
    return Finding(verdict_of(errors[WARM] <= errors[FLOOR], errors[WARM] < CLOSE), errors[WARM], None, note)


def _uncertainty(data: Data) -> Finding:
    rows, pools = data["single"], data["pooled"]["rows"][WARM]
    ratio, alike = sum(pools["ratio"]) / SHOWN, min(pools["correlation"])
    note = (
        f"Pooled pixel deviation over the conditional's own, mean over pixels of the three shown; least "
        f"correlation of the two maps {alike:.2f}. One emission: {rows[WARM]['ratio']['median']:.2f}, the same draws "
        f"{rows[FLOOR]['ratio']['median']:.2f}, per-set optimum {rows[FINETUNED]['ratio']['median']:.2f}, universal "
        f"map {rows[UNIVERSAL]['ratio']['median']:.2f}."
    )
    inside = NEAR_ONE[0] < ratio < NEAR_ONE[1]
    return Finding(verdict_of(inside and alike > ALIKE, alike > ALIKE), ratio, None, note)


def _about_the_field(data: Data) -> Finding:
    stated, left = data["estimates"]["stated"][SHARP], data["estimates"]["left"]
    found = data["single"]["coverage"]
    note = (
        f"Root mean square pixel deviation of the conditional over the error that a linear regression leaves "
        f"({stated:.3f} over {left:.3f}). Share of pixels within the stated 90%, truth cut to 32 modes: conditional "
        f"{found['conditional']['inside']:.0%}, one emission {found[WARM]['inside']:.0%}, draws "
        f"{found[FLOOR]['inside']:.0%}. The map is coherent, and it is mostly the smoothing of the conditional."
    )
    near = NEAR_ONE[0] < stated / left < NEAR_ONE[1]
    covers = abs(found["conditional"]["inside"] - 0.9) < 0.1
    return Finding(verdict_of(near, covers), stated / left, None, note)


def _faint(data: Data) -> Finding:
    rows = data["estimates"]["rows"]
    note = (
        f"Norm of the conditional mean field over that of the truth in 32 modes, median of "
        f"{data['estimates']['fields']} fields; with the broad reading {rows[BROAD]['amplitude']:.2f}, for the "
        f"regression {rows[BEST]['amplitude']:.2f}. Correlation with the true field: {rows[SHARP]['correlation']:.2f}, "
        f"{rows[BROAD]['correlation']:.2f} and {rows[BEST]['correlation']:.2f}."
    )
    faint = rows[SHARP]["amplitude"]
    return Finding(verdict_of(faint < HALF, faint < ALIKE), faint, None, note)


def _unrecoverable(data: Data) -> Finding:
    found = data["estimates"]
    rows = found["rows"]
    note = (
        f"R² in the 32 latent coordinates of {found['fields']} fields beyond the atoms, {data['atoms']} atoms: "
        f"linear regression on {COMPONENTS[-1]} components of the readings against {rows[SHARP]['r2']:.2f} for the "
        f"conditional mean ({rows[BROAD]['r2']:.2f} in the broad reading); on the {COMPONENTS[0]} components that the"
        f" conditional reads {rows[READING]['r2']:.2f}. First {COARSE} coordinates: {rows[BEST]['r2_coarse']:.2f}, "
        f"{rows[SHARP]['r2_coarse']:.2f}, {rows[BROAD]['r2_coarse']:.2f}. The 32 modes hold {found['kept']:.1%} of the "
        "field's variance. The readings inform the subspace; it is the conditional that smooths it away."
    )
    best = rows[BEST]["r2"]
    return Finding(verdict_of(best < rows[SHARP]["r2"] + CLOSE, best < HALF), best, None, note)


def _complement(data: Data) -> Finding:
    lost = 1.0 - data["estimates"]["kept"]
    share = lost / (1.0 - data["estimates"]["rows"][SHARP]["field_r2"])
    note = (
        f"Share of the conditional mean's squared error that lies outside the 32 modes, where nothing is tried: the "
        f"truncation costs {lost:.1%} of the field's variance, the conditional mean misses "
        f"{1.0 - data['estimates']['rows'][SHARP]['field_r2']:.0%}, the regression "
        f"{1.0 - data['estimates']['rows'][BEST]['field_r2']:.0%}."
    )
    return Finding(verdict_of(share > HALF, share > 0.25), share, None, note)


PLACE = "section 7.6, fig:dq-darcy-recon"
EXPERIMENT = Experiment(
    label="dq-darcy-recon",
    title="Groundwater: fields and deviations of three held-out queries",
    minutes=6.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "darcy-mean-matches",
            "The back-mapped mean of the nodes is the conditional mean that it integrates.",
            PLACE,
            "relative error of one emission's mean field; close is a tenth",
            _mean_matches,
        ),
        Claim(
            "darcy-pooling-pays",
            "Pooling independent emissions gives a low-noise mean and map.",
            "remark 3, fig:dq-darcy-recon",
            "relative error of the pooled mean, against that of the pooled draws",
            _pooling,
        ),
        Claim(
            "darcy-uncertainty-map",
            "The pooled spread of the nodes is a coherent map of the pixel uncertainty.",
            PLACE,
            "pooled deviation over the conditional's own; near one is a tenth",
            _uncertainty,
        ),
        Claim(
            "darcy-uncertainty-of-the-field",
            "That map is the uncertainty about the field.",
            "section 7.6",
            "deviation of the conditional over the error of a linear regression",
            _about_the_field,
        ),
        Claim(
            "darcy-recovery-faint",
            "The recovered field is faint.",
            PLACE,
            "norm of the conditional mean field over that of the truth",
            _faint,
        ),
        Claim(
            "darcy-forward-map-uninformative",
            "It is faint because the forward map informs a low-dimensional subspace only.",
            PLACE,
            "R² of a linear regression from the same readings",
            _unrecoverable,
        ),
        Claim(
            "darcy-truncation-floor",
            "What is missing is the truncation floor of the 32 modes and no error of the method.",
            PLACE,
            "share of the squared error outside the 32 modes",
            _complement,
        ),
    ),
)
