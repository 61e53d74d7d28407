"""A training run on disk: one safetensors file, its counters as JSON in the header, replaced in one move."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from amsip._disk import write_atomically

FORMAT = 1


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], counters: Mapping[str, Any]) -> None:
    """Tensors and counters in one file.

    Example:
        >>> import tempfile, torch
        >>> path = Path(tempfile.mkdtemp()) / "run.safetensors"
        >>> save_checkpoint(path, {"a": torch.ones(2)}, {"step": 3})
        >>> load_checkpoint(path)[1]["step"]
        3
    """
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(whole, {"format": str(FORMAT), "counters": json.dumps(dict(counters))}))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_checkpoint` wrote.

    Raises:
        ValueError: The file is of another format.
    """
    with safe_open(path, "pt") as file:
        header = file.metadata() or {}
        if header.get("format") != str(FORMAT):
            raise ValueError(
                f"{path} must be a checkpoint of format {FORMAT}: got {header.get('format')}. Start again without it."
            )
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(header["counters"])  # noqa: SIM118
