"""Rules on disk: one `.npz` of plain arrays with JSON metadata inside; nothing in it is ever executed."""

import importlib.metadata
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from amsip import _checks
from amsip._disk import write_atomically
from amsip.rules import Rule

FORMAT = "amsip.rule"
SCHEMA = 1
MAX_BYTES = 2_000_000_000
REQUIRED = ("nodes", "weights", "metadata")
# what the standard library raises on damaged archives
UNREADABLE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, SyntaxError, RuntimeError)


@dataclass(frozen=True)
class RuleMetadata:
    """What a rule file says about itself.

    Arguments:
        names: One name per parameter, where the writer gave them.
        notes: Anything JSON can hold that the writer wished to keep.
        version: The version of `amsip` that wrote the file.
        batches: How many emissions the rule pools.

    Example:
        >>> RuleMetadata(names=("log T", "log S")).names[1]
        'log S'
    """

    names: tuple[str, ...] = ()
    notes: Mapping[str, object] = field(default_factory=dict)
    version: str = ""
    batches: int = 1


def save_rule(
    rule: Rule, path: str | Path, *, names: Sequence[str] = (), notes: Mapping[str, object] | None = None
) -> None:
    """Write a rule; a reader sees the old file or the whole new one, never a part.

    Arguments:
        rule: The rule. Its nodes, weights and emission are kept, in their precision; its embedding is not.
        path: Where to; `.npz` by custom, so that `numpy.load` opens it too.
        names: One name per parameter.
        notes: Anything JSON can hold.

    Raises:
        ValueError: `names` does not have one entry per parameter, or `notes` is not JSON.

    Example:
        >>> import tempfile
        >>> rule = Rule(torch.tensor([[-1.0], [1.0]]), torch.tensor([0.5, 0.5]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_rule(rule, Path(folder, "rule.npz"), names=["x"])
        ...     load_rule(Path(folder, "rule.npz")).weights
        tensor([0.5000, 0.5000])
    """
    _checks.one_name_per_coordinate(names, rule.nodes.shape[-1])
    metadata = {"format": FORMAT, "schema": SCHEMA, "version": importlib.metadata.version("amsip")}
    metadata |= {"names": list(names), "notes": dict(notes or {}), "batches": rule.batches}
    try:
        text = json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`notes` must be what JSON can hold: {error}.") from None
    arrays = {"nodes": rule.nodes.detach().cpu().numpy(), "weights": rule.weights.detach().cpu().numpy()}
    if rule.emission is not None:
        arrays["emission"] = rule.emission.cpu().numpy()
    arrays["metadata"] = np.frombuffer(text.encode(), dtype=np.uint8)
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    write_atomically(Path(path), stream.getvalue())


def load_rule(path: str | Path) -> Rule:
    """The rule in a file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is truncated, is not a rule, or was written by a newer version.

    Example:
        >>> load_rule("no-such-rule.npz")
        Traceback (most recent call last):
        ...
        FileNotFoundError: There is no file 'no-such-rule.npz'.
    """
    arrays = read_arrays(Path(path), MAX_BYTES)
    metadata = _metadata(Path(path), arrays)
    nodes, weights = torch.from_numpy(arrays["nodes"]), torch.from_numpy(arrays["weights"])
    _checks.stored_rule(str(path), nodes, weights)
    emission = torch.from_numpy(arrays["emission"].astype(np.int64)) if "emission" in arrays else None
    return Rule(nodes, weights, emission=emission, batches=metadata.batches)


def load_metadata(path: str | Path) -> RuleMetadata:
    """What a rule file says about itself.

    Example:
        >>> load_metadata("no-such-rule.npz")
        Traceback (most recent call last):
        ...
        FileNotFoundError: There is no file 'no-such-rule.npz'.
    """
    return _metadata(Path(path), read_arrays(Path(path), MAX_BYTES))


def read_arrays(path: Path, limit: int) -> dict[str, np.ndarray]:
    """The arrays of an `.npz`, sizes checked before anything is read; object arrays are refused."""
    _checks.existing_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            _checks.file_size(path, sum(member.file_size for member in members), limit)
            arrays = {member.filename.removesuffix(".npy"): _read_array(archive.read(member)) for member in members}
    except UNREADABLE as error:
        if isinstance(error, _checks.FileFormatError):
            raise
        raise _checks.FileFormatError(f"'{path}' is not a readable .npz file, or is cut short: {error}.") from None
    return arrays


def _read_array(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(stream)
    # a header may promise more than the file holds: nothing is allocated on its word
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > len(content):
        raise ValueError(f"an array of {shape} {dtype} does not fit its entry")
    flat = np.frombuffer(stream.read(), dtype=dtype, count=math.prod(shape))
    return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))


def _metadata(path: Path, arrays: Mapping[str, np.ndarray]) -> RuleMetadata:
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise _checks.FileFormatError(f"'{path}' is not a rule: it has no {missing}. Write rules with `save_rule`.")
    try:
        content = json.loads(arrays["metadata"].tobytes())
        stamp, schema = content["format"], int(content["schema"])
    except (ValueError, KeyError, TypeError):
        raise _checks.FileFormatError(f"'{path}' is not a rule: its metadata is not what `save_rule` writes.") from None
    if stamp != FORMAT:
        raise _checks.FileFormatError(f"'{path}' is not a rule: it says it is {stamp!r}.")
    if schema > SCHEMA:
        raise _checks.FileFormatError(
            f"'{path}' has schema {schema}, newer than {SCHEMA}: read it with amsip {content.get('version')} or later."
        )
    names, notes = tuple(content.get("names", ())), content.get("notes", {})
    return RuleMetadata(names, notes, str(content.get("version", "")), int(content.get("batches", 1)))
