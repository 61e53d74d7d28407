"""Reference draws of eighty public posteriors, read from the benchmark package that carries them, never installed."""

import bz2
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from amsip import _checks
from amsip.bench.cache import cache_directory

WHEEL = "sbibm-1.1.0-py2.py3-none-any.whl"
SHA256 = "12ecc6b4d327b92f9225f08faa6405e4274fb8e75943d86a53157d1b1bcfaf74"
MEMBER = "sbibm/tasks/{task}/files/num_observation_{observation}/reference_posterior_samples.csv.bz2"
DIMENSIONS = {
    "two_moons": 2,
    "gaussian_mixture": 2,
    "sir": 2,
    "lotka_volterra": 4,
    "slcp": 5,
    "gaussian_linear": 10,
    "gaussian_linear_uniform": 10,
    "bernoulli_glm": 10,
}
TASKS = tuple(DIMENSIONS)
DEVELOPMENT = (1, 2, 3, 4, 5)
FINAL = (6, 7, 8, 9, 10)


def load_posterior(task: str, observation: int) -> Float64[Tensor, "n d"]:
    """The 10,000 reference draws of one posterior of sbibm 1.1.0 (MIT).

    Arguments:
        task: One of `TASKS`.
        observation: 1 to 10; nothing is ever chosen by looking at 6 to 10.

    Raises:
        ValueError: There is no such task or observation.
        ConnectionError: The wheel is not in the cache and could not be fetched.
    """
    _checks.one_of("task", task, TASKS)
    _checks.one_of("observation", observation, DEVELOPMENT + FINAL)
    parsed = cache_directory("sbibm") / f"{task}-{observation:02d}.npy"
    if not parsed.exists():
        member = MEMBER.format(task=task, observation=observation)
        with zipfile.ZipFile(wheel()) as archive:
            _write_atomically(parsed, _parse(archive.read(member)))
    return torch.from_numpy(np.load(parsed, allow_pickle=False))


def wheel() -> Path:
    """The cached wheel, fetched by pip when missing, its SHA-256 checked."""
    path = cache_directory("sbibm") / WHEEL
    if not path.exists():
        _fetch(path.parent)
    _checks.checksum(path, hashlib.sha256(path.read_bytes()).hexdigest(), SHA256)
    return path


def _fetch(directory: Path) -> None:
    """Download without installing and without dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "sbibm==1.1.0"]
    done = subprocess.run([*command, "-d", str(directory)], capture_output=True, text=True, check=False)
    _checks.fetched("the reference draws", directory / WHEEL, "pip download --no-deps sbibm==1.1.0", done.stderr)


def _parse(compressed: bytes) -> np.ndarray:
    text = io.StringIO(bz2.decompress(compressed).decode("utf-8"))
    return np.loadtxt(text, delimiter=",", skiprows=1, dtype=np.float64, ndmin=2)


def _write_atomically(path: Path, values: np.ndarray) -> None:
    """Two processes may parse the same posterior: each writes its own file, the last rename wins."""
    partial = path.with_name(f"{path.stem}.{os.getpid()}.npy")
    np.save(partial, values)
    os.replace(partial, path)
