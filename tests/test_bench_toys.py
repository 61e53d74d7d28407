import argparse
import json

import pytest
import torch

from amsip.bench import toys as bench
from amsip.bench.toys import arms, bars, endings, fitted, measure, page, repeats, studies
from amsip.defaults import universal_descent
from amsip.discrepancy import mmd2
from amsip.maps.attention import AttentionMap
from amsip.pretrained import load_card, save_map
from amsip.weights import optimal_weights

QUICK_ARMS = (arms.FLOOR, arms.REWEIGHT, arms.GREEDY)


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(list(words))


def work(m: int = 5, sets: int = 3, name: str = "gaussian-2") -> arms.Work:
    toy = measure.bench_toys()[name]
    return arms.Work(toy, toy.reference().embed(toy.kernel), m, toy.seed_sets(m, sets))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(bench, "QUICK_TOYS", ("gaussian-2",))
    monkeypatch.setattr(bench, "QUICK_NODES", (4,))
    monkeypatch.setattr(bench, "QUICK_SETS", 5)
    monkeypatch.setattr(arms, "CANDIDATES", 100)


def test_a_run_is_json_and_a_second_run_reads_its_cells(tiny, tmp_path, monkeypatch):
    words = ("--quick", "--cells", str(tmp_path), "--arms", ",".join(QUICK_ARMS))
    first = bench.run(options(*words))
    assert [c["arm"] for c in json.loads(json.dumps(first))["cells"]] == list(QUICK_ARMS)

    def refuse(arm, work):
        raise AssertionError(f"{arm.name} was measured again")

    monkeypatch.setattr(measure, "score_arm", refuse)
    assert bench.run(options(*words))["cells"] == first["cells"]
    with pytest.raises(AssertionError, match="reweight was measured again"):
        bench.run(options(*words, "--again", arms.REWEIGHT))


def test_cells_of_another_plan_are_measured_anew(tiny, tmp_path, monkeypatch):
    words = ("--quick", "--cells", str(tmp_path), "--arms", arms.FLOOR)
    few = bench.run(options(*words))["cells"][0]
    monkeypatch.setattr(bench, "QUICK_SETS", 7)
    assert bench.run(options(*words))["cells"][0]["quartiles"] != few["quartiles"]


def test_what_cannot_run_is_left_out_and_said(tmp_path):
    plan = measure.Plan(toys=("banana",), nodes=(4,), sets=2, names=(arms.PAPER,))
    lines: list[str] = []
    assert measure.measure_plan(plan, tmp_path, lines.append) == []
    assert lines[0].startswith("left out: paper's map on 1 of 1 toys (not fitted yet")


def test_scores_are_medians_of_the_discrepancy_at_the_right_weights(tmp_path):
    known = {arm.name: arm for arm in arms.every_arm(tmp_path)}
    floor, reweight = known[arms.FLOOR], known[arms.REWEIGHT]
    given = work(sets=11)
    uniform = torch.full((11, 5), 0.2, dtype=torch.float64)
    expected = mmd2(given.seeds, uniform, given.embedding).quantile(0.5)
    assert measure.score_arm(floor, given)["median"] == pytest.approx(float(expected))
    best = mmd2(given.seeds, optimal_weights(given.seeds, given.embedding), given.embedding)
    cell = measure.score_arm(reweight, given)
    assert cell["median"] == pytest.approx(float(best.quantile(0.5)))
    assert cell["below_floor"] == 1.0


def test_the_optimum_is_below_every_one_of_its_starts(monkeypatch):
    monkeypatch.setattr(arms, "CANDIDATES", 50)
    monkeypatch.setattr(arms, "_long_descent", lambda nodes, embedding: nodes)
    given = work()
    found = arms.losses(arms._optimum(given), given.embedding)
    for start in (given.seeds, given.other_seeds(1), given.other_seeds(2)):
        assert (found <= arms.losses(start, given.embedding)).all()


def test_gathering_measures_nothing(tmp_path):
    made = measure.Plan(("gaussian-2",), nodes=(4,), sets=3, names=(arms.FLOOR,))
    measured = measure.measure_plan(made, tmp_path, lambda line: None)
    every = measure.Plan(("gaussian-2", "gaussian-4"), nodes=(4, 8), sets=3, gather=True)
    assert measure.measure_plan(every, tmp_path, lambda line: None) == measured
    assert len(measured) == 1


def test_a_failing_arm_is_a_cell():
    def fail(given):
        raise RuntimeError("no")

    assert measure.score_arm(arms.Arm("broken", fail), work())["failed"] == "RuntimeError: no"


def test_every_toy_is_there_plain_and_whitened_and_the_banana_has_one_bank():
    names = list(measure.bench_toys())
    assert len(names) == 16
    assert names[8:] == [f"{name}-whitened" for name in names[:8]]
    assert measure.bench_toys()["banana"].reference().atoms.shape == (4000, 2)


def test_maps_are_fitted_once_kept_and_used(tmp_path, monkeypatch):
    monkeypatch.setattr(fitted, "GAUSSIAN_STEPS", 2)
    monkeypatch.setattr(fitted, "BATCH", 3)
    monkeypatch.setattr(fitted, "UNROLLED_BATCH", 2)
    monkeypatch.setattr(fitted, "TRIAL_STEPS", 1)
    toy = measure.bench_toys()["gaussian-2"]
    lines: list[str] = []
    fitted.fit_missing(toy, tmp_path, lines.append)
    assert len(lines) == 4
    cards = [load_card(fitted.weights_file(tmp_path, slug, toy)) for slug in fitted.SLUGS]
    assert cards[0].parameters == 114690
    fitted.fit_missing(toy, tmp_path, lines.append)
    assert len(lines) == 4
    moved = next(a for a in arms.every_arm(tmp_path) if a.name == arms.PAPER).make(work())
    assert moved.shape == work().seeds.shape
    assert not torch.equal(moved, work().seeds)


def test_page_stars_the_best_arm_and_counts_losses():
    values = {arms.FLOOR: 1.0, arms.REWEIGHT: 0.9, arms.UNIVERSAL: 0.3, arms.GREEDY: 0.2, arms.OPTIMUM: 0.1}
    cells = [{"toy": "gaussian-2", "arm": a, "m": 16, "median": v} for a, v in values.items()]
    text = page.render({"cells": cells, "missing": {"MSIP": {"gaussian-2": "absent"}}, "arms": list(values)})
    assert "0.2*" in text
    assert "0.1*" not in text
    assert "universal below greedy BQ: 0 of 1; not on gaussian-2 16 (1.50)" in text
    assert "universal within what is asked, at the paper's bandwidths: 0 of 1; not on gaussian-2 16 (3.00)" in text
    assert "left out: MSIP on 1 toys: absent" in text


def test_the_optimum_is_compared_on_its_own_seed_sets(tmp_path, monkeypatch):
    # catches the ratio of a median over all sets to a median over some of them
    monkeypatch.setattr(measure, "FEW_SETS", 3)
    given = work(sets=11)
    cell = measure.score_arm(next(arms.every_arm(tmp_path)), given)
    few = mmd2(given.seeds[:3], torch.full((3, 5), 0.2, dtype=torch.float64), given.embedding)
    assert cell[measure.PAIRED] == pytest.approx(float(few.quantile(0.5)))
    cells = [
        {"toy": "t", "m": 4, "arm": arms.OPTIMUM, "median": 2.0, measure.PAIRED: 9.0},
        {"toy": "t", "m": 4, "arm": arms.FITTED, "median": 8.0, measure.PAIRED: 3.0},
        {"toy": "t", "m": 4, "arm": arms.DEFAULT, "median": 8.0},
    ]
    assert bars.over_optimum(cells) == {("t", arms.FITTED, 4): 1.5, ("t", arms.DEFAULT, 4): 4.0}


def test_an_older_cell_is_completed_not_measured_anew(tmp_path, monkeypatch):
    plan = measure.Plan(("gaussian-2",), nodes=(4,), sets=7, names=(arms.REWEIGHT,))
    (whole,) = measure.measure_plan(plan, tmp_path, lambda line: None)
    path = tmp_path / "cells" / "gaussian-2-004-reweight.json"
    older = {key: value for key, value in whole.items() if key != measure.PAIRED}
    path.write_text(json.dumps(older | {"seconds": 123.0}))
    monkeypatch.setattr(measure, "FEW_SETS", 3)
    (completed,) = measure.measure_plan(plan, tmp_path, lambda line: None)
    toy = measure.bench_toys()["gaussian-2"]
    few, embedding = toy.seed_sets(4, 7)[:3], toy.reference().embed(toy.kernel)
    expected = mmd2(few, optimal_weights(few, embedding), embedding).quantile(0.5)
    assert completed == older | {"seconds": 123.0, measure.PAIRED: pytest.approx(float(expected))}


def test_the_fitted_map_is_followed_by_the_descent_of_the_default_map(tmp_path):
    given = work()
    net = AttentionMap(2, generator=torch.Generator().manual_seed(0)).double()
    path = fitted.weights_file(tmp_path, fitted.UNROLLED, given.toy)
    path.parent.mkdir()
    save_map(net, path)
    arm = next(a for a in arms.every_arm(tmp_path) if a.name == arms.FITTED_DESCENT)
    # an untrained net returns its seeds, so what is left is the descent
    assert torch.equal(arm.make(given), universal_descent(given.seeds, given.embedding))


def test_rivals_of_one_toy_are_asked_about_one_pool():
    first, second = work(), work(m=7)
    assert first.pool() is second.pool()
    assert first.pool().shape == (arms.POOL, 2)


def test_bars_are_counted_apart_for_the_papers_bandwidths_and_whitened():
    over = {
        ("gaussian-2", arms.FITTED, 32): 1.2,
        ("banana", arms.FITTED, 32): 1.21,
        ("banana-whitened", arms.FITTED, 64): 1.7,
        ("mixture-32", arms.FITTED, 64): 99.0,
    }
    lines = list(bars.counts(over))
    assert lines[0] == "fitted map within what is asked, at the paper's bandwidths: 1 of 2; not on banana 32 (1.21)"
    assert lines[1] == "fitted map within what is asked, whitened: 0 of 1; not on banana-whitened 64 (1.70)"
    assert "1.21!" in bars.section(over)
    assert "mixture-32" not in bars.section(over)


def test_cells_that_nobody_measured_are_named():
    cells = [{"toy": "a", "arm": "x", "m": 4}, {"toy": "a", "arm": "y", "m": 4}, {"toy": "b", "arm": "x", "m": 4}]
    result = {"toys": ["a", "b", "c"], "nodes": [4, 6], "arms": ["x", "y"], "dear": ["y"], "cells": cells}
    assert list(page.absent(result | {"missing": {"x": {"c": "why"}}})) == [
        "not measured: x on a (M = 6), b (M = 6)",
        "not measured: y on b, c",
    ]


def test_a_fit_of_the_papers_map_is_looked_at_on_its_way(monkeypatch):
    monkeypatch.setattr(repeats, "STEPS", 3)
    monkeypatch.setattr(repeats, "SPACING", 1)
    monkeypatch.setattr(repeats, "STOPS", 2)
    monkeypatch.setattr(repeats, "SETS", 3)
    part = json.loads(json.dumps(repeats.refit("float64", 1)))
    assert list(part["ratios"]) == ["2", "3"]
    assert all(0 < ratio < 2 for ratios in part["ratios"].values() for ratio in ratios.values())
    assert "float64, other training draws" in repeats.paragraph([part])


def test_what_moves_the_papers_map_is_ranked_by_its_factor():
    def part(dtype, stream, *at_the_largest):
        looks = {str(3900 + 100 * i): {"4": 0.57, "64": value} for i, value in enumerate(at_the_largest)}
        return {"dtype": dtype, "stream": stream, "ratios": looks}

    parts = [part("float32", 0, 0.02, 0.04), part("float64", 0, 0.044, 0.044), part("float32", 1, 0.03, 0.05)]
    told = repeats._compared(parts, "64")
    assert told.index("the step at which one stops (a factor of up to 2.00)") < told.index("the training draws")
    assert told.index("the training draws (a factor of up to 1.25)") < told.index("the precision")


def test_studies_are_kept_in_parts_and_never_measured_by_gathering(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(studies, "STUDIES", {"one": {"a": lambda: asked.append("a") or {"v": 1}}, "two": {}})
    lines: list[str] = []
    assert studies.study_parts(tmp_path, (), lines.append) == {"one": [], "two": []}
    for _ in range(2):
        assert studies.study_parts(tmp_path, ("one",), lines.append) == {"one": [{"v": 1}], "two": []}
    assert asked == ["a"]


def test_the_ending_is_told_against_the_optimum(monkeypatch):
    monkeypatch.setattr(endings, "BUDGETS", (5,))
    monkeypatch.setattr(endings, "FEW_SETS", 2)
    monkeypatch.setattr(endings, "MORE_STEPS", 2)
    part = json.loads(json.dumps(endings.endings(measure.bench_toys()["gaussian-2-whitened"])))
    row = part["budgets"]["5"]["variants"][endings.USUAL]
    assert 0 < row["mmd2"] < part["budgets"]["5"]["floor"]
    text = endings.section([part], {("gaussian-2-whitened", 5): row["mmd2"] / 3.0})
    assert f"| gaussian-2-whitened M=5 | {row['mmd2'] / 3.0:.2g} | 3 |" in text
