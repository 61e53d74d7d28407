"""The networks that are compared: the shipped design trained for few steps, and one change of it at a time."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amsip.pretrained import load_card
from amsip.training.runs import RunConfig

BASE, TWIN, SHIPPED, NONE = "base", "base, other random numbers", "the shipped weights", "no network"


@dataclass(frozen=True)
class Variant:
    """A design, as changes of the configuration of the shipped weights.

    Arguments:
        name: What the page calls it.
        changes: Settings that replace the shipped ones, table by table; a loss replaces the whole table.

    Example:
        >>> Variant("4 layers", {"map": {"layers": 4}}).configuration(7, Path("x")).map["layers"]
        4
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """Its name as a file's."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def configuration(self, steps: int, folder: Path) -> RunConfig:
        """The whole run: as the shipped weights were trained but for the changes, in so many steps."""
        shipped = RunConfig.of(load_card("universal").about["configuration"])
        tables = {**dataclasses.asdict(shipped), "output": str(folder / f"{self.slug}.safetensors")}
        for key, change in self.changes.items():
            whole = key == "loss" or not isinstance(change, Mapping)
            tables[key] = change if whole else {**tables[key], **change}
        tables["fit"] = {**tables["fit"], "steps": steps}
        return RunConfig.of(tables)


VARIANTS = (
    Variant(BASE),
    Variant("2 layers", {"map": {"layers": 2}}),
    Variant("4 layers", {"map": {"layers": 4}}),
    Variant("width 32", {"map": {"width": 32}}),
    Variant("8 layers that share their weights", {"map": {"shared": True}}),
    Variant(TWIN, {"map": {"rng_seed": 100}, "rng_seed": 101}),
    Variant("narrow family: mixtures, usual kernel", {"tasks": {"mixture_share": 1.0, "usual_share": 1.0}}),
    Variant("12 layers", {"map": {"layers": 12}}),
    Variant("loss of the last layer alone", {"fit": {"every_layer": False}}),
    Variant("squared loss", {"loss": {"kind": "squared"}}),
)
QUICK = VARIANTS[:2]
