"""The committed pages say what the committed results say, letter by letter."""

import json
from pathlib import Path

import pytest

from amsip.bench import bandwidths, default
from amsip.bench.core import page as core
from amsip.bench.networks import page as networks
from amsip.bench.posteriors import caution
from amsip.bench.posteriors import pages as posteriors
from amsip.bench.toys import page as toys

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    "core": ("core", core.page),
    "bandwidths": ("bandwidths", bandwidths.page),
    "default": ("default", default.page),
    "networks": ("networks", networks.page),
    "toys": ("toys", toys.page),
    "posteriors": ("posteriors", posteriors.page),
    "when-not-to-use": ("posteriors", caution.page),
}


@pytest.mark.parametrize("name", PAGES)
def test_committed_pages_are_made_from_their_committed_results(name):
    source, made = PAGES[name]
    result = json.loads((DOCS / "results" / f"{source}.json").read_text(encoding="utf-8"))
    assert made(result) == (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert result["commit"]


def test_the_final_table_is_of_observations_that_nothing_was_chosen_by():
    result = json.loads((DOCS / "results" / "posteriors.json").read_text(encoding="utf-8"))
    assert {row["observation"] for row in result["cells"]} == {6, 7, 8, 9, 10}
    assert max(json.loads((DOCS / "results" / "default.json").read_text())["observations"].values()) <= 5
