"""List the trained maps that are shipped, each with its card.

    amsip maps

Every map is a file of weights in `amsip/pretrained/` with a card beside it: what it was trained on, by which command,
what it scores.
"""

import argparse
import json
from importlib.resources import files

FIRST = ("name", "summary", "trained_on", "command", "parameters", "sha256")


def configure(parser: argparse.ArgumentParser) -> None:
    """`amsip maps` takes no arguments."""


def run(arguments: argparse.Namespace) -> str:
    """The cards, one block each."""
    cards = sorted((f for f in files("amsip.pretrained").iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    blocks = [_block(card.name.removesuffix(".json"), json.loads(card.read_text(encoding="utf-8"))) for card in cards]
    return "\n\n".join(blocks) or "No trained maps are shipped with this version; rules reweight their seeds."


def _block(name: str, card: dict[str, object]) -> str:
    keys = [key for key in FIRST if key in card] + [key for key in card if key not in FIRST]
    lines = [f"  {key:<14} {_shown(card[key])}" for key in keys if key != "name"]
    return "\n".join([str(card.get("name", name)), *lines])


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
