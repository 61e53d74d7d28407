import argparse
import json

import pytest
import torch

from amsip import Samples, quadrature
from amsip.bench import default
from amsip.bench.posteriors.choices import CHOICES, Choice
from amsip.bench.posteriors.integrands import FAMILIES
from amsip.bench.posteriors.yardstick import Split


def draws(n=200, d=2):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(5), dtype=torch.float64).mul(0.5).exp()


def still(nodes, embedding):
    return nodes


def test_the_first_choice_is_what_quadrature_does():
    pool = draws()
    rule = quadrature(pool, 9, generator=torch.Generator().manual_seed(0))
    again = CHOICES[0].rule(Samples(pool), Samples(pool).subset(9, generator=torch.Generator().manual_seed(0)))
    assert torch.allclose(rule.nodes, again.nodes, atol=1e-6)
    assert torch.allclose(rule.weights, again.weights, atol=1e-6)


def test_choices_have_different_files():
    assert len({choice.slug for choice in CHOICES}) == len(CHOICES)


def test_a_finish_makes_the_covariance_exact_and_its_absence_does_not():
    pool = draws()
    moved, left = (Choice("a", "b", node_map=still, finish=f).rule(Samples(pool), pool[:9]) for f in (True, False))
    assert torch.allclose(moved.cov(), pool.T.cov(correction=0), atol=1e-8)
    assert torch.allclose(left.nodes, pool[:9], atol=1e-12)


def test_the_least_family_is_over_tasks_and_the_median_over_observations():
    def cell(task, value):
        return {"task": task, "choice": "the default", "ms": 1.0, "raw": dict.fromkeys(FAMILIES, 400.0) | value}

    cells = [cell("sir", {"square": 9.0}), cell("sir", {"square": 5.0}), cell("sir", {"square": 1.0})]
    cells += [cell("slcp", {"cross": 6.0}), cell("gaussian_linear", {})]
    row = default.summary(CHOICES[0], cells)
    assert row["least"] == (5.0, "square", "sir")
    assert row["worth"]["d = 10"] == pytest.approx(10_000 / 32)
    assert row["worth"]["d = 4, 5"] == pytest.approx((6.0 * (10_000 / 32) ** 8) ** (1 / 9))


def test_finished_cells_are_read_and_stale_ones_measured_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(default, "split_posterior", lambda *_: Split.of_draws(draws()))
    monkeypatch.setattr(default, "CHOICES", CHOICES[-1:])
    first = default.measure("sir", 1, 2, tmp_path)
    path = next(tmp_path.iterdir())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ms": -1.0}))
    assert default.measure("sir", 1, 2, tmp_path)[0]["ms"] == -1.0
    again = default.measure("sir", 1, 3, tmp_path)[0]
    assert again["ms"] >= 0
    assert again["raw"] != first[0]["raw"]


def test_the_page_has_a_table_for_each_group():
    rows = [
        {
            "group": c.group,
            "choice": c.name,
            "worth": dict.fromkeys(default.GROUPS, 3.0),
            "least": (1.0, "x", "y"),
            "ms": 2,
        }
        for c in CHOICES
    ]
    made = {"command": "c", "commit": "abc", "date": "2026-01-02T03", "versions": {}, "seconds": 1}
    result = {**made, "nodes": 32, "sets": 24, "observations": {"sir": 3}, "rows": rows}
    text = default.page(result)
    assert text.count("| the default |") == len({c.group for c in CHOICES}) - 1
    assert len(default.render(result).splitlines()) == len(CHOICES) + 2


def test_options():
    parser = argparse.ArgumentParser()
    default.add_arguments(parser)
    assert parser.parse_args(["--quick"]).quick
