import argparse
import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from amsip.bench import networks
from amsip.bench.networks import page, summary
from amsip.bench.networks.heldout import HeldOut
from amsip.bench.networks.measure import LONG, STEPS, Job, measure
from amsip.bench.networks.variants import BASE, NONE, SHIPPED, TWIN, VARIANTS
from amsip.defaults import universal_descent, universal_network
from amsip.discrepancy import mmd2
from amsip.kernels import SquaredExponential
from amsip.maps.catalogue import build_map
from amsip.references.embeddings import AtomsEmbedding
from amsip.training.universal import UniversalTasks, usual_kernel
from amsip.weights import optimal_weights

SMALL = HeldOut(dims=(2, 3), nodes=(3,), batches=1, queries=2)


def options(*words):
    parser = argparse.ArgumentParser()
    networks.add_arguments(parser)
    return parser.parse_args(list(words))


def discrepancies(nodes, embedding):
    return mmd2(nodes, optimal_weights(nodes, embedding), embedding)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    words = ("--quick", "--processes", "1", "--cells", str(folder / "cells"), "--pages", str(folder))
    return folder, networks.run(options(*words))


def test_a_run_has_a_row_for_each_network_and_writes_the_page_of_its_json(quick):
    folder, result = quick
    assert [row["name"] for row in result["rows"]] == [BASE, "2 layers", SHIPPED, NONE]
    again = json.loads(json.dumps(result))
    assert page.page(again) == (folder / "networks.md").read_text()
    assert page.render(again).startswith("network")
    assert "not measured yet: *4 layers*." in page.page(again | {"missing": ["4 layers"]})


def test_two_layers_have_a_quarter_of_the_parameters_and_a_shorter_pass(quick):
    base, shallow = quick[1]["rows"][:2]
    assert base["parameters"] == quick[1]["rows"][2]["parameters"] == 4 * shallow["parameters"]
    assert shallow["pass"] < base["pass"]
    assert shallow["steps"] == networks.QUICK_STEPS


def test_no_network_is_descent_from_the_seeds(quick):
    cell = json.loads((quick[0] / "cells" / "no-network.json").read_text())
    for entry, problem in zip(cell["scores"], networks.QUICK_HELD_OUT.problems(), strict=True):
        for steps in STEPS:
            nodes = replace(universal_descent, steps=steps)(problem.seeds, problem.embedding)
            expected = discrepancies(nodes, problem.embedding)
            assert torch.tensor(entry["scores"][str(steps)]) == pytest.approx(expected, rel=1e-6)
        assert all(b < a for a, b in zip(entry["scores"]["8"], entry["scores"][str(LONG)], strict=True))


def test_an_untrained_network_is_no_network():
    untrained = build_map("unrolled", {"layers": 2, "width": 8}).double()
    for problem in SMALL.problems():
        plain = problem.scores(lambda nodes, embedding: nodes, STEPS)
        assert problem.scores(untrained, STEPS) == plain


def test_the_shipped_row_is_the_default_network(quick):
    cell = json.loads((quick[0] / "cells" / "the-shipped-weights.json").read_text())
    for entry, problem in zip(cell["scores"], networks.QUICK_HELD_OUT.problems(), strict=True):
        expected = discrepancies(universal_network(problem.seeds, problem.embedding), problem.embedding)
        assert torch.tensor(entry["scores"]["0"]) == pytest.approx(expected, rel=1e-6)


def test_more_descent_is_never_worse():
    for problem in SMALL.problems():
        scores = problem.scores(universal_network, (0, 1, 3, 8))
        worst = [max(b - a for a, b in zip(scores[s], scores[t], strict=True)) for s, t in ("01", "13", "38")]
        assert max(worst) <= 1e-12


def test_held_out_posteriors_depend_on_their_place_alone():
    whole = {(p.place, p.kernel): p for p in SMALL.problems()}
    for problem in HeldOut(dims=(3,), nodes=(3,), batches=2, queries=2).problems():
        if problem.place[3] == 0:
            assert torch.equal(problem.seeds, whole[problem.place, problem.kernel].seeds)
    assert len({float(p.seeds.sum()) for p in SMALL.problems()}) == len(whole) / 2


def test_the_base_is_the_shipped_design_and_each_variant_another_one():
    root = Path(__file__).parents[1]
    file = tomllib.loads((root / "configs" / "universal.toml").read_text())
    base = asdict(VARIANTS[0].configuration(9000, Path()))
    assert {key: base[key] for key in file if key != "output"} == {k: v for k, v in file.items() if k != "output"}
    made = [json.dumps(asdict(variant.configuration(7, Path()))) for variant in VARIANTS]
    assert len(set(made)) == len({variant.slug for variant in VARIANTS}) == len(VARIANTS)
    for variant in VARIANTS:
        tables = asdict(variant.configuration(9000, Path()))
        assert {key for key in tables if tables[key] != base[key]} == {*variant.changes} | (
            set() if variant.name == BASE else {"output"}
        )


def test_the_squared_loss_drops_the_settings_of_the_other():
    by_name = {variant.name: variant for variant in VARIANTS}
    assert by_name["squared loss"].configuration(1, Path()).loss == {"kind": "squared"}
    assert by_name["2 layers"].configuration(1, Path()).map["width"] == 64


def test_the_narrow_family_knows_mixtures_and_the_usual_kernel_alone():
    generator, tasks = torch.Generator().manual_seed(3), UniversalTasks(usual_share=1.0, mixture_share=1.0)
    for task in (tasks(generator) for _ in range(20)):
        assert not isinstance(task.embedding, AtomsEmbedding)
        assert repr(task.embedding.kernel) == repr(usual_kernel(task.embedding.dim))
    wide = [UniversalTasks()(generator) for _ in range(20)]
    assert any(isinstance(task.embedding, AtomsEmbedding) for task in wide)
    assert any(isinstance(task.embedding.kernel, SquaredExponential) for task in wide)


def test_finished_networks_are_read_and_stale_ones_trained_anew(tmp_path):
    job = Job("2 layers", 1, replace(SMALL, dims=(2,)), tmp_path)
    first = measure(job)
    job.path.write_text(json.dumps(first | {"seconds": -1.0}))
    assert measure(job)["seconds"] == -1.0
    assert measure(replace(job, steps=2))["steps"] == 2
    assert replace(job, held_out=replace(SMALL, queries=3)).finished() is None


def test_nothing_is_gathered_without_the_rows_that_others_are_measured_by(tmp_path):
    with pytest.raises(FileNotFoundError, match="base"):
        networks.run(options("--gather", "--cells", str(tmp_path)))


def entries(*values, kernel="usual"):
    return [
        {"place": [2, 8, "pools", batch], "kernel": kernel, "scores": {"0": list(pair)}}
        for batch, pair in enumerate(values)
    ]


def test_whole_batches_are_drawn_again():
    base = entries((1.0, 1.0), (1.0, 1.0), (1.0, 1.0))
    alike = summary.versus(entries((0.1, 10.0), (0.01, 100.0), (4.0, 0.25)), base, 0, lambda entry: True)
    assert alike == pytest.approx((1.0, 1.0, 1.0))
    mean, low, high = summary.versus(entries((2.0, 2.0), (8.0, 8.0), (4.0, 4.0)), base, 0, lambda entry: True)
    assert (mean, low, high) == pytest.approx((4.0, 2.0, 8.0))


def test_ratios_are_paired_posterior_by_posterior():
    base = entries((1.0, 1e-6), (1e3, 1.0))
    ours = entries((3.0, 3e-6), (3e3, 3.0))
    assert summary.versus(ours, base, 0, lambda entry: True) == pytest.approx((3.0, 3.0, 3.0))
    mixed = [*ours, *entries((7.0, 7e-6), (7e3, 7.0), kernel="default")]
    both = [*base, *entries((1.0, 1e-6), (1e3, 1.0), kernel="default")]
    assert summary.versus(mixed, both, 0, summary.GROUPS["default kernel"])[0] == pytest.approx(7.0)


def row(name, values):
    ratio = {str(step): (1.0, 2.0, 3.0) for step in STEPS}
    against = {"all": {str(step): values for step in STEPS}}
    about = {"parameters": 10, "steps": 5, "seconds": 1.0, "pass": 1.0, "skipped": 0}
    return {"name": name, **about, "ratio": ratio, "against": against}


def test_what_other_random_numbers_do_is_noise():
    rows = [row(BASE, (1.0, 1.0, 1.0)), row(TWIN, (0.9, 0.8, 1.1)), row("a", (1.2, 1.1, 1.3))]
    rows += [row("b", (1.5, 1.3, 1.6)), row("c", (0.5, 0.4, 0.7))]
    said = page.sentences(rows)[1]
    assert "worse than the base: *b* (1.50); better: *c* (0.50); not told apart: *a*." in said
    assert "worse than the base: *a* (1.20), *b* (1.50); better: *c*" in page.sentences([rows[0], *rows[2:]])[0]
