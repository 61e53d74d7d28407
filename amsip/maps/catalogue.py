"""The kinds of map that can be written down: a name and settings that JSON or TOML can hold."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from amsip import _checks
from amsip.maps.layers import seeded

KINDS = {
    "attention": ("amsip.maps.attention", "AttentionMap"),
    "conditioned": ("amsip.maps.conditioned", "ConditionedMap"),
    "unrolled": ("amsip.maps.unrolled", "UnrolledMap"),
}


def build_map(kind: str, settings: Mapping[str, Any], *, generator: torch.Generator | None = None) -> nn.Module:
    """An untrained map.

    Arguments:
        kind: "attention" (the paper's), "conditioned" (its twin that reads an observation) or "unrolled".
        settings: The arguments of its constructor.
        generator: Draws the initial parameters.

    Raises:
        ValueError: The kind or a setting does not exist.

    Example:
        >>> build_map("attention", {"dim": 7}).dim
        7
    """
    _checks.one_of("kind", kind, list(KINDS))
    module, name = KINDS[kind]
    constructor = getattr(importlib.import_module(module), name)
    known = list(inspect.signature(constructor).parameters)
    _checks.known_keys(f"the {kind} map", list(settings), [key for key in known if key != "generator"])
    if "generator" in known:
        made: nn.Module = constructor(**settings, generator=generator)
        return made
    with seeded(generator):
        return constructor(**settings)


def describe_map(node_map: nn.Module) -> tuple[str, dict[str, Any]]:
    """The kind and the settings from which `build_map` makes the same map, untrained.

    Example:
        >>> describe_map(build_map("attention", {"dim": 7}))[0]
        'attention'
    """
    name = type(node_map).__name__
    kinds = [kind for kind, (_, constructor) in KINDS.items() if constructor == name]
    _checks.catalogued(name, kinds, hasattr(node_map, "settings"))
    return kinds[0], dict(node_map.settings)  # type: ignore[arg-type]
