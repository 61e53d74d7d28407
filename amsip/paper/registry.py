"""Every experiment, in the paper's order, imported when it is asked for."""

import importlib
import importlib.util

from amsip.paper.base import Experiment

# a label's module is its name with underscores; one that is not written yet is not listed
LABELS = (
    "teaser",
    "ped-kernel-mean",
    "architecture",
    "ped-levers",
    "lever-split",
    "mechanism",
    "dq-mmd",
    "dimension-sweep",
    "dq-vs-svgd",
    "dq-tomography-mmd",
    "dq-tomography-calibration",
    "dq-downstream-integral",
    "dq-cnf-mmd",
    "dq-cnf-recon",
    "dq-darcy-mmd",
    "dq-darcy-recon",
    "finetune-frontier",
    "weight-ess",
    "weight-dist",
    "node-weight",
    "bandwidth-sensitivity",
    "dq-resolution-ablation",
    "repro",
)


def labels() -> tuple[str, ...]:
    """The labels that can be reproduced.

    Example:
        >>> isinstance(labels(), tuple)
        True
    """
    return tuple(label for label in LABELS if importlib.util.find_spec(_module(label)) is not None)


def experiment(label: str) -> Experiment:
    """One experiment, by the paper's label of its figure.

    Raises:
        ValueError: There is none with that label.

    Example:
        >>> experiment("fig:nothing")
        Traceback (most recent call last):
        ...
        ValueError: There is no experiment 'fig:nothing'; there are ...
    """
    name = label.removeprefix("fig:").removeprefix("tab:")
    if name not in labels():
        raise ValueError(f"There is no experiment '{label}'; there are {', '.join(labels())}.")
    found: Experiment = importlib.import_module(_module(name)).EXPERIMENT
    return found


def _module(label: str) -> str:
    return f"amsip.paper.{label.replace('-', '_')}"
