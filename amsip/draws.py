"""Draws on disk: `.npz`, `.npy`, `.csv` and the NetCDF files of ArviZ, as one table of named columns."""

import csv
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from amsip import _checks
from amsip.files import read_arrays

MAX_BYTES = 20_000_000_000
WEIGHT_NAMES = ("weights", "sample_weights")
TABLE_NAMES = ("samples", "draws")


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws with their column names, and their weights where the file has them.

    Arguments:
        values: The draws, one row each; `(queries, n, d)` when the file held several posteriors.
        names: One name per column.
        weights: One non-negative weight per draw.

    Example:
        >>> Draws(torch.zeros(5, 1, dtype=torch.float64), ("x",)).names
        ('x',)
    """

    values: Float64[Tensor, "*q n d"]
    names: tuple[str, ...]
    weights: Float64[Tensor, "*q n"] | None = None


def read_draws(
    path: str | Path,
    *,
    columns: Sequence[str] = (),
    weights_column: str | None = None,
    leading: str | None = None,
) -> Draws:
    """The draws in a file, as float64.

    Arguments:
        path: `.npy`: one array. `.npz`: one array named `samples` (with `names` and `weights`, if wished), or one array
            per parameter. `.csv`: one row per draw, with or without a header. `.nc`: the `posterior` group of ArviZ,
            chains stacked.
        columns: The parameters to keep, in this order; a vector parameter may be named whole (`theta`) or by
            component (`theta[0]`). All by default, but for the sampler columns of Stan (`lp__` and the like) and
            columns without a name, which are the row numbers of a data frame.
        weights_column: The column that holds sample weights.
        leading: What the first axis of a three-dimensional array is: `chains`, which are stacked, or `queries`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file cannot be read, or a name is not in it; the message lists those that are.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "draws.csv").write_text("a,b\\n1,2\\n3,4\\n")
        ...     read_draws(Path(folder, "draws.csv"), columns=["b"]).values
        tensor([[2.],
                [4.]], dtype=torch.float64)
    """
    path = Path(path)
    _checks.existing_file(path)
    _checks.one_of("leading", leading, (None, "chains", "queries"))
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv, ".nc": _read_netcdf}
    _checks.one_of("the suffix of the file of draws", path.suffix.lower(), tuple(readers))
    return _select(path, readers[path.suffix.lower()](path, leading), columns, weights_column)


def _read_npy(path: Path, leading: str | None) -> Draws:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise _checks.FileFormatError(f"'{path}' is not a readable .npy file, or is cut short: {error}.") from None
    return _table(path, np.asarray(array), (), leading)


def _read_npz(path: Path, leading: str | None) -> Draws:
    arrays = read_arrays(path, MAX_BYTES)
    names = tuple(str(name) for name in arrays.pop("names", ()))
    weights = next((arrays.pop(name) for name in WEIGHT_NAMES if name in arrays), None)
    table = next((arrays[name] for name in TABLE_NAMES if name in arrays), None)
    if table is None and len(arrays) == 1 and next(iter(arrays.values())).ndim > 1:
        table = next(iter(arrays.values()))
    draws = _flatten(path, arrays) if table is None else _table(path, table, names, leading)
    if weights is None:
        return draws
    if weights.shape == (*draws.values.shape[:-1],) or leading != "chains":
        return replace(draws, weights=_numbers(path, "weights", weights))
    return replace(draws, weights=_numbers(path, "weights", weights).reshape(-1))


def _read_csv(path: Path, leading: str | None) -> Draws:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        lines = (line for line in stream if line.strip() and not line.startswith("#"))
        first = next(csv.reader(lines), [])
        header = any(not _is_number(cell) for cell in first)
        names = tuple(cell.strip() for cell in first) if header else ()
        body = next(lines, None) if header else ",".join(first)
        if not body:
            raise _checks.FileFormatError(f"'{path}' holds no draws.")
        try:
            rows = np.loadtxt(itertools.chain([body], lines), delimiter=",", ndmin=2)
        except ValueError as error:
            message = f"'{path}' is not a table of numbers: {error}".replace("\n", " ")
            raise _checks.FileFormatError(message) from None
    return _table(path, rows, names, leading)


def _read_netcdf(path: Path, leading: str | None) -> Draws:
    try:
        import xarray
    except ImportError:
        raise ImportError("Reading .nc files needs xarray: `pip install 'amsip[files]'`.") from None
    try:
        with xarray.open_dataset(path, group="posterior", engine="h5netcdf") as posterior:
            stacked = posterior.load().stack(_draw=("chain", "draw")).transpose("_draw", ...)
    except (OSError, ValueError, KeyError) as error:
        raise _checks.FileFormatError(
            f"'{path}' has no readable group 'posterior' with dimensions chain and draw: {error}."
        ) from None
    return _flatten(path, {str(name): values.to_numpy() for name, values in stacked.data_vars.items()})


def _table(path: Path, array: np.ndarray, names: Sequence[str], leading: str | None) -> Draws:
    """One array: rows are draws, a third axis in front is what the caller says it is."""
    values = _numbers(path, "samples", array)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim == 3 and leading == "chains":
        values = values.reshape(-1, values.shape[-1])
    if values.ndim != 2 and not (values.ndim == 3 and leading == "queries"):
        raise _checks.FileFormatError(
            f"'{path}' must hold an (n, d) array: got {tuple(values.shape)}. If the first axis of three "
            "counts chains or posteriors, say so with `leading` ('chains' or 'queries')."
        )
    names = tuple(names) or tuple(f"x{i}" for i in range(values.shape[-1]))
    if len(names) != values.shape[-1]:
        raise _checks.FileFormatError(f"'{path}' has {len(names)} names for {values.shape[-1]} columns.")
    return Draws(values, names)


def _flatten(path: Path, variables: Mapping[str, np.ndarray]) -> Draws:
    """One array per parameter, draws along the first axis; vectors become name[0], name[1], ..."""
    lengths = {name: np.shape(values)[:1] for name, values in variables.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        shapes = {name: tuple(np.shape(values)) for name, values in variables.items()}
        raise _checks.FileFormatError(
            f"'{path}' must hold an array named 'samples', or arrays with one entry per draw each: got {shapes}."
        )
    names, parts = [], []
    for name, values in variables.items():
        inner = values.shape[1:]
        labels = [",".join(str(i) for i in index) for index in np.ndindex(*inner)] if inner else []
        names += [f"{name}[{label}]" for label in labels] or [name]
        parts.append(_numbers(path, name, values).reshape(values.shape[0], -1))
    return Draws(torch.cat(parts, -1), tuple(names))


def _select(path: Path, draws: Draws, columns: Sequence[str], weights_column: str | None) -> Draws:
    weights = draws.weights
    if weights_column is not None:
        weights = draws.values[..., _find(path, draws.names, weights_column)[0]]
    # Stan's own diagnostics end in two underscores
    kept = [i for i, name in enumerate(draws.names) if name and not name.endswith("__") and name != weights_column]
    if columns:
        kept = [i for column in columns for i in _find(path, draws.names, column)]
    if not kept:
        raise _checks.FileFormatError(f"'{path}' holds no parameters: its columns are {list(draws.names)}.")
    return Draws(draws.values[..., kept], tuple(draws.names[i] for i in kept), weights)


def _find(path: Path, names: Sequence[str], wanted: str) -> list[int]:
    found = [i for i, name in enumerate(names) if name == wanted or name.startswith(f"{wanted}[")]
    if not found:
        raise _checks.FileFormatError(f"'{path}' has no column {wanted!r}: its columns are {list(names)}.")
    return found


def _numbers(path: Path, name: str, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "fiu":
        raise _checks.FileFormatError(f"`{name}` in '{path}' must be real numbers: got dtype {array.dtype}.")
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
