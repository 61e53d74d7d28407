"""Trained maps and flows on disk: weights as safetensors, and beside them a card that says what they are."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from amsip import _checks
from amsip._disk import sha256, write_atomically
from amsip.maps.catalogue import KINDS, build_map, describe_map

SHIPPED = Path(__file__).parent
SCHEMA = 1


@dataclass(frozen=True)
class MapCard:
    """What is known about trained weights.

    Arguments:
        name: What `load_map` calls them.
        kind: The kind of map, see `amsip.maps.catalogue`.
        settings: The arguments of the map's constructor.
        sha256: The digest of the weights' file.
        parameters: How many numbers were fitted.
        about: How they came to be: command, configuration, versions, seconds, losses, scores.
        schema: The version of this format.

    Example:
        >>> MapCard("mine", "attention", {"dim": 2}, "", 114690).schema
        1
    """

    name: str
    kind: str
    settings: dict[str, Any]
    sha256: str
    parameters: int
    about: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA


def available_maps() -> tuple[str, ...]:
    """The names of the maps shipped with the package.

    Example:
        >>> isinstance(available_maps(), tuple)
        True
    """
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.json") if json.loads(path.read_text())["kind"] in KINDS))


def load_map(name: str | Path) -> nn.Module:
    """A trained map: weights shipped with the package, by name, or a file written by `save_map`.

    Arguments:
        name: One of `available_maps()`, or the path of a `.safetensors` file with its card beside it.

    Returns:
        A NodeMap in evaluation mode, in the precision it was saved in; a new one at each call.

    Raises:
        FileNotFoundError: There are no such weights.
        ValueError: The weights are not the ones the card describes.

    Example:
        >>> load_map("no-such-map")
        Traceback (most recent call last):
        ...
        FileNotFoundError: There are no weights 'no-such-map': ...
    """
    tensors, card = load_weights(name)
    node_map = build_map(card.kind, card.settings, generator=torch.Generator())
    node_map.to(next(value.dtype for value in tensors.values() if value.is_floating_point()))
    _checks.fitting(weights_path(name), list(node_map.state_dict()), list(tensors))
    node_map.load_state_dict(tensors)
    return node_map.eval()


def load_weights(name: str | Path) -> tuple[dict[str, Tensor], MapCard]:
    """The tensors of trained weights and their card, once the digest agrees.

    Arguments:
        name: Shipped weights by name, or the path of a `.safetensors` file with its card beside it.

    Raises:
        FileNotFoundError: There are no such weights.
        ValueError: The weights are not the ones the card describes.
    """
    path, card = weights_path(name), load_card(name)
    content = path.read_bytes()
    _checks.checksum(path, sha256(content), card.sha256)
    return load(content), card


def load_card(name: str | Path) -> MapCard:
    """The card of trained weights.

    Raises:
        FileNotFoundError: There are no such weights.
        ValueError: The card was written by another version.
    """
    path = weights_path(name)
    card = path.with_suffix(".json")
    _checks.weights_found(str(name), path, card, available_maps())
    values = json.loads(card.read_text())
    _checks.schema(card, values.get("schema"), SCHEMA)
    return MapCard(**values)


def save_map(node_map: nn.Module, path: str | Path, *, about: Mapping[str, Any] | None = None) -> MapCard:
    """Writes the weights of a map and their card.

    Arguments:
        node_map: A map of the catalogue.
        path: Where the weights go, `.safetensors`; the card goes beside them, `.json`.
        about: What the card should say about them; anything JSON can hold.

    Returns:
        The card.

    Example:
        >>> import tempfile
        >>> from amsip.maps.attention import AttentionMap
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     card = save_map(AttentionMap(2), Path(folder, "mine.safetensors"), about={"steps": 0})
        ...     load_map(Path(folder, "mine.safetensors")).dim
        2
    """
    kind, settings = describe_map(node_map)
    parameters = sum(p.numel() for p in node_map.parameters())
    return save_weights(path, kind, settings, node_map.state_dict(), parameters=parameters, about=about)


def save_weights(
    path: str | Path,
    kind: str,
    settings: dict[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    parameters: int,
    about: Mapping[str, Any] | None = None,
) -> MapCard:
    """Writes tensors and the card that describes them.

    Arguments:
        path: Where the weights go, `.safetensors`; the card goes beside them, `.json`.
        kind: What they are weights of.
        settings: What it takes to make it again, untrained.
        tensors: By name.
        parameters: How many numbers were fitted.
        about: What the card should say about them; anything JSON can hold.
    """
    path = Path(path)
    content = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    card = MapCard(path.stem, kind, settings, sha256(content), parameters, dict(about or {}))
    write_atomically(path, content)
    text = json.dumps(dataclasses.asdict(card), indent=2, allow_nan=False)
    write_atomically(path.with_suffix(".json"), (text + "\n").encode())
    return card


def weights_path(name: str | Path) -> Path:
    """The file a name stands for: a path if it looks like one, else shipped weights."""
    path = Path(name)
    return path if path.suffix == ".safetensors" else SHIPPED / f"{name}.safetensors"
