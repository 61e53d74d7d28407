"""Verdicts are no kinder than their sentences, and each sentence is placed where the paper has it."""

import re

import pytest

from amsip.paper import flow_findings
from amsip.paper.arms import DESCENT, FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Verdict
from amsip.paper.dq_resolution_ablation import TITLES
from amsip.paper.dq_vs_svgd import PANELS
from amsip.paper.judge import ratio_of
from amsip.paper.registry import experiment, labels
from amsip.paper.resolution import FULL, SUBSET
from amsip.paper.svgd_cells import EIGHT, SVGD, SVGD_REWEIGHTED
from amsip.paper.tomography import TABULATED

HOLDS, CONDITION, FAILS = Verdict.HOLDS, Verdict.CONDITION, Verdict.FAILS
SECTIONS = {3: 4, 4: 5, 5: 3, 6: 0, 7: 7, 8: 4, 9: 0, 10: 0}
APPENDICES = {"A": 4, "B": 2, "C": 5}
EQUATIONS, REMARKS, PROPOSITIONS, ALGORITHMS = 15, 5, 3, 2
# where the text of the paper discusses each of its figures
FIGURES = {
    "ped-kernel-mean": "3.1",
    "architecture": "4.1",
    "ped-levers": "4.4",
    "lever-split": "4.4",
    "mechanism": "4.4",
    "dq-mmd": "7.1",
    "dq-vs-svgd": "7.2",
    "dq-tomography-mmd": "7.3",
    "dq-tomography-calibration": "7.3",
    "dq-downstream-integral": "7.3",
    "dq-cnf-mmd": "7.4",
    "dq-cnf-recon": "7.4",
    "dq-darcy-mmd": "7.6",
    "dq-darcy-recon": "7.6",
    "finetune-frontier": "7.7",
    "weight-ess": "8.1",
    "weight-dist": "8.1",
    "node-weight": "8.2",
    "bandwidth-sensitivity": "8.3",
    "dq-resolution-ablation": "8.4",
}
ALSO = {("weight-ess", "8.2"), ("lever-split", None), ("dq-darcy-recon", None)}


def check(label: str, name: str, data):
    return next(claim for claim in experiment(label).claims if claim.name == name).check(data)


def places():
    return [(label, claim.name, claim.place) for label in labels() for claim in experiment(label).claims]


def test_every_place_is_one_that_the_paper_has():
    known = {f"{s}.{k}" for s, count in SECTIONS.items() for k in range(1, count + 1)} | {str(s) for s in SECTIONS}
    letters = {f"{a}.{k}" for a, count in APPENDICES.items() for k in range(1, count + 1)} | set(APPENDICES)
    kinds = {"equation": EQUATIONS, "remark": REMARKS, "proposition": PROPOSITIONS, "algorithm": ALGORITHMS}
    for _, name, place in places():
        assert set(re.findall(r"section ([\d.]+)", place)) <= known, (name, place)
        assert set(re.findall(r"appendix (\w(?:\.\d)?)", place)) <= letters, (name, place)
        for kind, last in kinds.items():
            assert all(1 <= int(n) <= last for n in re.findall(rf"{kind} \(?(\d+)", place)), (name, place)
        figures = re.findall(r"(?:fig|tab):([\w-]+)", place)
        assert figures or re.search(r"section|appendix|proposition|algorithm", place), (name, place)


def test_a_figure_is_placed_in_its_section():
    """Catches the groundwater in 7.5, the frontier in 7.6 and the levers in 4.5."""
    for label, name, place in places():
        for figure in re.findall(r"fig:([\w-]+)", place):
            found = re.search(r"section ([\d.]+)", place)
            section = found.group(1) if found else None
            assert figure == label or label == "teaser", (name, place)
            assert section == FIGURES.get(figure) or (figure, section) in ALSO, (name, place)


def test_medians_over_different_sets_are_compared_through_their_floors():
    rows = [
        {"arm": WARM, "m": 4, "median": 0.3, "ratio": 0.5},
        {"arm": FINETUNED, "m": 4, "median": 0.3, "ratio": 0.25},
    ]
    assert ratio_of(rows, WARM, FINETUNED, 4) == 2.0


@pytest.mark.parametrize(
    ("banana", "verdict"),
    [([0.40, 0.42], HOLDS), ([0.40, 0.47], CONDITION), ([0.55, 0.57], FAILS)],
)
def test_the_deepest_margin_is_so_beyond_doubt(banana, verdict):
    def rows(low, high):
        cell = {"arm": WARM, "ratio": 0.5 * (low + high), "ratio_interval": [low, high]}
        return [{**cell, "m": m} for m in (4, 8, 16)]

    data = {"rows": {"gaussian-2": rows(0.6, 0.7), "mixture-10": rows(0.46, 0.5), "banana": rows(*banana)}}
    assert check("dq-mmd", "toys-banana-deepest", data).verdict == verdict


@pytest.mark.parametrize(("ratios", "verdict"), [((0.5, 0.6), HOLDS), ((0.5, 0.95), CONDITION), ((0.5, 1.05), FAILS)])
def test_a_win_by_a_hair_is_not_clear(ratios, verdict):
    rows = [
        {"arm": arm, "m": m, "over_svgd": over, "over_svgd_interval": [0.99 * over, 1.01 * over]}
        for arm in (FINETUNED, UNIVERSAL, DESCENT, SVGD, SVGD_REWEIGHTED)
        for m, over in zip((4, 64), ratios, strict=True)
    ]
    data = {"rows": dict.fromkeys(PANELS, rows)}
    assert check("dq-vs-svgd", "svgd-clear-win-in-eight-dimensions", data).verdict == verdict
    assert EIGHT in PANELS


def tomography(warm: list[tuple[float, float]], uncentred: float = 0.5) -> dict:
    rows = [
        {"arm": arm, "m": m, "ratio": 0.5 * (low + high), "ratio_interval": [low, high], "below_floor": 1.0, "sets": 9}
        for arm in (WARM, UNIVERSAL, REWEIGHT)
        for m, (low, high) in zip((4, 8), warm, strict=True)
    ]
    observations = {"difference": 1e-12, "centred": 0.5, "uncentred": uncentred, "distances": [3.0]}
    return {"rows": {TABULATED: rows, "median": rows}, "observations": observations}


def test_every_cell_of_the_tomography_counts_and_not_the_worst_alone():
    label = "dq-tomography-mmd"
    assert check(label, "tomography-below-floor", tomography([(0.9, 0.95), (0.5, 0.6)])).verdict == HOLDS
    wide = tomography([(0.9, 0.95), (0.7, 1.05)])
    assert check(label, "tomography-below-floor", wide).verdict == CONDITION
    assert check(label, "tomography-below-floor", tomography([(1.1, 1.2), (0.5, 0.6)])).verdict == FAILS
    deeper = check(label, "tomography-margin-deepens", tomography([(0.9, 0.95), (0.5, 0.6)]))
    assert deeper.verdict == HOLDS
    assert deeper.interval is None, "an interval of something else than the number"


def test_a_network_that_needs_centred_seeds_is_not_conditioned():
    label = "dq-tomography-mmd"
    for uncentred, verdict, invariant in ((0.5, HOLDS, HOLDS), (0.9, FAILS, CONDITION)):
        data = tomography([(0.9, 0.95), (0.5, 0.6)], uncentred)
        assert check(label, "tomography-conditioned-network", data).verdict == verdict
        assert check(label, "tomography-observation-invariant", data).verdict == invariant


def frontier(exact: float, dataset: float, end: float) -> dict:
    def part(name: str, seeds: str, start: float) -> dict:
        line = {"reading": "closed form", "start": "warm", "median": [start, end * start]}
        return {
            "case": name,
            "seeds": seeds,
            "floor": 1.0,
            "emission": [start] * 3,
            "descent": [start] * 3,
            "lines": [line],
        }

    cases = ("gaussian-2", "tomography-7", "tomography-7-median")
    parts = [part(name, seeds, start) for name in cases for seeds, start in (("exact", exact), ("dataset", dataset))]
    return {"parts": parts, "kept": {"gaussian-2": [0.9], "tomography-7": [0.8]}}


def test_the_direction_of_the_frontier():
    label = "finetune-frontier"
    for (exact, dataset, end), toward, settles, contracts in (
        ((2.0, 3.0, 0.3), HOLDS, HOLDS, HOLDS),
        ((0.5, 3.0, 0.5), CONDITION, CONDITION, HOLDS),
        ((0.5, 0.6, 1.1), FAILS, HOLDS, CONDITION),
        ((0.5, 3.0, 2.5), FAILS, FAILS, CONDITION),
    ):
        data = frontier(exact, dataset, end)
        assert check(label, "frontier-toward-floor", data).verdict == toward
        assert check(label, "frontier-settles-below-floor", data).verdict == settles
        assert check(label, "frontier-contraction", data).verdict == contracts


def test_a_bulk_that_is_worse_than_draws_has_not_shrunk_to_parity():
    def data(bulk: float) -> dict:
        errors = {"beyond 2": 0.3, "beyond 2.5": 0.4, "distance": bulk, "square": bulk}
        return {
            "rows": [
                {"arm": arm, "m": m, "integrand": name, "directions": "leading", "median": 1.0 if arm == "iid" else e}
                for arm in ("iid", "warm", "default")
                for m in (4, 64)
                for name, e in errors.items()
            ]
        }

    name = "downstream-parity-in-the-bulk"
    for bulk, verdict in ((0.9, HOLDS), (2.0, CONDITION), (0.1, FAILS)):
        assert check("dq-downstream-integral", name, data(bulk)).verdict == verdict


def test_draws_must_be_matched_by_both_measures_of_error():
    def data(rmse: float) -> dict:
        rows = [
            {"arm": arm, "m": 8, "integrand": name, "directions": "leading", "median": 0.1, "rmse": rmse}
            for arm in ("warm", "warm-median", "default")
            for name in ("beyond 2", "beyond 2.5")
        ]
        draws = [
            {"n": n, "integrand": name, "median": 3.0 / n, "rmse": 3.0 / n}
            for n in (8, 16, 32, 64)
            for name in ("beyond 2", "beyond 2.5")
        ]
        return {"rows": rows, "draws": draws}

    name = "downstream-several-times-the-draws"
    assert check("dq-downstream-integral", name, data(0.1)).verdict == HOLDS
    assert check("dq-downstream-integral", name, data(0.3)).verdict == CONDITION


def test_a_larger_node_budget_cannot_save_the_printed_refinement():
    def row(name: str, ratio: float) -> dict:
        interval = {"ratio": ratio, "ratio_interval": [0.9 * ratio, 1.1 * ratio]}
        return {"variation": name, "steps": 60, "scores": [1.0, ratio], "rank": [1, 1], "ess": [1, 1], **interval}

    for printed, larger, verdict in ((1.3, 1.3, HOLDS), (1.3, 0.2, CONDITION), (0.2, 1.3, FAILS)):
        data = {"refined": [row("as printed", printed), row("twice the nodes", larger)]}
        assert check("dq-darcy-mmd", "darcy-refinement-stalls", data).verdict == verdict


def test_levers_separate_when_moving_gains_visibly():
    for gap, verdict in ((0.8, HOLDS), (0.999, FAILS)):
        rows = [
            {"arm": arm, "m": 4, "median": median, "ratio": median, "repeated": 0.0}
            for arm, median in ((FLOOR, 1.0), (REWEIGHT, 0.9), (WARM, 0.9 * gap))
        ]
        data = {"rows": {"sharp": rows}}
        assert check("dq-darcy-mmd", "darcy-levers-separate", data).verdict == verdict


def test_both_range_trained_networks_are_judged():
    """Catches a verdict that looks at the network with the worst median alone."""

    def row(toy: str, net: str, ratio: float, high: float) -> dict:
        return {"toy": toy, "arm": net, "m": 4, "ratio": ratio, "median": ratio, "ratio_interval": [0.9 * ratio, high]}

    rows = [row(toy, arm, 0.1, 0.2) for toy in TITLES for arm in (FINETUNED, FLOOR)]
    rows += [row(toy, SUBSET, 0.9, 0.95) for toy in TITLES] + [row(toy, FULL, 0.8, 1.2) for toy in TITLES]
    assert check("dq-resolution-ablation", "resolution-range-below-everywhere", {"rows": rows}).verdict == CONDITION


def test_a_repair_ends_in_health():
    for after, verdict in ((0.5, HOLDS), (0.05, CONDITION), (0.001, FAILS)):
        rows = [
            {"toy": toy, "arm": arm, "m": 64, "ess": ess}
            for toy in ("gaussian-2", "banana")
            for arm, ess in ((REWEIGHT, 0.002), (WARM, after))
        ]
        assert check("weight-ess", "ess-moving-repairs", {"rows": rows}).verdict == verdict


def test_down_weighted_nodes_on_the_ridge_are_a_condition():
    for down, verdict in ((0.1, HOLDS), (0.6, CONDITION)):
        ridge = {"up_on_it": 0.7, "up_off_it": 0.3, "down": 0.2, "down_on_it": down}
        data = {"m": 64, "banana": {"rank": {"mean": 0.5, "error": 0.01, "sets": 128}, "ridge": ridge}}
        assert check("node-weight", "nodes-ridge-up-tails-down", data).verdict == verdict


def test_a_denser_node_that_is_no_nearer_is_not_pulled_onto_the_ridge():
    gain = {"mean": 0.2, "error": 0.01, "sets": 256}
    for nodes, verdict in ((0.6, HOLDS), (0.8, CONDITION)):
        data = {"density_gain": gain, "off_ridge": {"draws": 0.8, "nodes": nodes, "error": 0.01}}
        assert check("teaser", "teaser-pulled-onto-the-ridge", data).verdict == verdict


def test_one_cell_of_ten_does_not_make_moving_the_larger_gain():
    def data(reweight: list[float]) -> dict:
        rows = []
        for m, value in zip((4, 8, 16, 32), reweight, strict=True):
            rows += [{"arm": arm, "m": m, "median": v} for arm, v in ((FLOOR, 1.0), (REWEIGHT, value), (WARM, 0.1))]
        return {"rows": {"banana": rows}}

    for reweight, verdict in (
        ([0.9, 0.9, 0.9, 0.9], HOLDS),
        ([0.9, 0.9, 0.2, 0.2], CONDITION),
        ([0.9, 0.2, 0.2, 0.2], FAILS),
    ):
        assert check("lever-split", "levers-moving-is-the-larger-gain", data(reweight)).verdict == verdict


def test_what_needs_no_observation_stands_beside_what_is_shown_one():
    rows = [
        {"arm": f"{arm}", "m": 4, "ratio": ratio}
        for arm, ratio in ((WARM, 0.4), (flow_findings.OTHER, 0.4), (UNIVERSAL, 0.3))
    ]
    found = flow_findings.reads_the_observation({"rows": rows})
    assert found.verdict == FAILS
    assert "0.3 of the floor" in found.note
