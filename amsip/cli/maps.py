"""List the trained maps that are shipped, each with its card.

    amsip maps
    amsip maps mine.safetensors      the card of your own weights

A card says what a map was trained on, by which command, and what it scores.
"""

import argparse
import json

from amsip.pretrained import MapCard, available_maps, load_card


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip maps`."""
    parser.add_argument("names", nargs="*", metavar="MAP", help="names or files (default: all that are shipped)")


def run(arguments: argparse.Namespace) -> str:
    """The cards, one block each."""
    cards = [load_card(name) for name in arguments.names or available_maps()]
    return "\n\n".join(_block(card) for card in cards) or "No trained maps are shipped with this version."


def _block(card: MapCard) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in card.settings.items())
    lines = {"map": f"{card.kind} ({settings})", "parameters": f"{card.parameters:,}", "SHA-256": card.sha256}
    lines |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in card.about.items()}
    return "\n".join([card.name, *(f"  {key:<14} {value}" for key, value in lines.items())])
