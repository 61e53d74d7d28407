"""What a training run can be about, by name: functions that return tasks, or a target with a reference and a kernel."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from amsip import _checks
from amsip.training.tasks import BUDGETS, ReferenceTasks, Tasks

FAMILIES = {
    "gaussian": "amsip.problems.toys:gaussian_toy",
    "mixture": "amsip.problems.toys:mixture_toy",
    "banana": "amsip.problems.toys:banana",
    "five-modes": "amsip.problems.toys:five_modes",
    "tomography": "amsip.problems.toys:tomography_latent",
    "universal": "amsip.training.universal:UniversalTasks",
}


def build_tasks(
    family: str, options: Mapping[str, Any], *, budgets: tuple[int, ...] = BUDGETS, batch: int = 64
) -> Tasks:
    """The tasks of a family.

    Arguments:
        family: A name of `FAMILIES`, or any function as "package.module:function". It returns tasks, or a target
            with `reference()` and `kernel` (and, for the option `whitened`, `whitened()`).
        options: Its arguments; `whitened = true` trains in the target's own chart.
        budgets: The numbers of nodes to choose from.
        batch: Seed sets a step.

    Raises:
        ValueError: The family or an option does not exist.

    Example:
        >>> import torch
        >>> build_tasks("gaussian", {"dim": 2}, budgets=(5,), batch=3)(torch.Generator()).seeds.shape
        torch.Size([3, 5, 2])
    """
    make = _function(FAMILIES.get(family, family))
    accepted = list(inspect.signature(make).parameters)
    shared = {name: value for name, value in (("budgets", budgets), ("batch", batch)) if name in accepted}
    own = {name: value for name, value in options.items() if name != "whitened"}
    _checks.known_keys(f"the family {family}", list(own), accepted)
    made = make(**own, **shared)
    if callable(made):
        _checks.known_keys(f"the family {family}", list(options), accepted)
        return made
    target = made.whitened() if options.get("whitened", False) else made
    return ReferenceTasks(target.reference(), target.kernel, budgets, batch)


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    _checks.function_path(path, name, list(FAMILIES))
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
