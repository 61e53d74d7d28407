"""The page and its drawings: scales, numbers, escaping, and that nothing is fetched."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amsip import Rule
from amsip.report import svg
from amsip.report.figures import error_chart, pair_plot
from amsip.report.page import code, data_table, page, section, switch


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), share=st.floats(0, 1))
def test_a_linear_scale_keeps_proportions(low, width, share):
    scale = svg.Scale(low, low + width, 10.0, 110.0)
    assert scale(low + share * width) == pytest.approx(10.0 + 100.0 * share, abs=1e-3)


@given(low=st.floats(1e-6, 1e3), factor=st.floats(1.5, 1e6), share=st.floats(0, 1))
def test_a_logarithmic_scale_keeps_factors(low, factor, share):
    scale = svg.Scale(low, low * factor, 100.0, 0.0, log=True)
    assert scale(low * factor**share) == pytest.approx(100.0 * (1 - share), abs=1e-6)


@given(low=st.floats(-1e4, 1e4), width=st.floats(1e-3, 1e5))
def test_ticks_lie_inside_and_are_evenly_spaced(low, width):
    scale = svg.Scale(low, low + width, 0.0, 1.0)
    ticks = scale.ticks(4)
    assert 1 <= len(ticks) <= 8
    assert all(low - 1e-9 * width <= t <= low + width + 1e-9 * width for t in ticks)
    gaps = [b - a for a, b in itertools.pairwise(ticks)]
    assert all(gap == pytest.approx(gaps[0], rel=1e-6, abs=1e-9) for gap in gaps)


@given(low=st.floats(1e-8, 1e3), factor=st.floats(1.2, 1e9))
def test_logarithmic_ticks_lie_inside_and_stay_few(low, factor):
    ticks = svg.Scale(low, low * factor, 0.0, 1.0, log=True).ticks()
    assert len(ticks) <= 11
    assert all(low <= t <= low * factor for t in ticks)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.0, 3, "0"),
        (1234.5, 3, "1,230"),
        (0.012345, 3, "0.0123"),
        (45.1, 2, "45"),
        (-2.5, 2, "-2.5"),
        (9.999, 3, "10.0"),
    ],
)
def test_numbers_read_well(value, digits, shown):
    assert svg.number(value, digits) == shown


def rules():
    generator = torch.Generator().manual_seed(5)
    return [Rule(torch.randn(m, 3, generator=generator), torch.randn(m, generator=generator)) for m in (3, 5)]


def test_the_pair_plot_has_every_node_in_every_cell_and_shows_one_rule():
    samples = torch.randn(2000, 3, generator=torch.Generator().manual_seed(4)) * 3.0
    drawn = ElementTree.fromstring(pair_plot(samples, ["a", "b<c", "d"], rules(), chosen=1))
    groups = [g for g in drawn.iter("g") if g.get("data-budget") is not None]
    assert [len(list(g.iter("circle"))) for g in groups] == [3 * 3, 5 * 3]
    assert ["hidden" in g.get("class") for g in groups] == [True, False]


def test_the_area_of_a_node_goes_with_its_weight():
    samples = torch.randn(500, 2, generator=torch.Generator().manual_seed(4)) * 3.0
    rule = Rule(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([0.8, -0.2]))
    circles = list(ElementTree.fromstring(pair_plot(samples, ["a", "b"], [rule], 0)).iter("circle"))
    large, small = (float(c.get("r")) for c in circles)
    assert (large / small) ** 2 == pytest.approx(4.0, rel=0.02)
    assert ["negative" in c.get("class") for c in circles] == [False, True]


def test_the_error_chart_puts_smaller_errors_lower():
    y = svg.Scale(0.01, 1.0, 200.0, 30.0, log=True)
    drawn = ElementTree.fromstring(error_chart("t", [8, 16], {"rule": [0.1, 0.02], "draws": [0.5, 0.4]}, y))
    heights = {c.get("class"): float(c.get("cy")) for c in drawn.iter("circle")}
    assert heights["rule-dot"] > heights["draws-dot"]


def test_text_is_escaped_everywhere():
    nasty = "<script>alert('x')</script>"
    made = page(
        nasty, "", [section(nasty, code(nasty), data_table([nasty], [[nasty, nasty]]), switch("a", [nasty], 0))]
    )
    made += svg.text(0, 0, nasty) + svg.circle(0, 0, 1, "c", nasty)
    assert nasty not in made
    assert made.count("&lt;script&gt;") == 10


def test_the_page_fetches_nothing():
    made = page("Title", "Lead.", [])
    assert not re.search(r"(src|href)=|@import|url\(|https?://", made)
    assert made.count("<script>") == 1
