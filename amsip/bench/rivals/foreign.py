"""Rivals from other libraries, each in an environment of its own, reached through files."""

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.bench.cache import cache_directory
from amsip.bench.rivals.base import Rival, Rules, random_seed
from amsip.kernels import Kernel, Octaves, Polynomial, SquaredExponential, Sum

REQUIREMENTS = {
    "goodpoints": ("goodpoints==0.6.3", "jax==0.10.2", "tqdm", "qpsolvers[proxqp]"),
    "coreax": ("coreax==1.0.0", "jax==0.10.2"),
    "scikit-learn": ("scikit-learn==1.9.1",),
}
LIBRARIES = {
    "kernel thinning": "goodpoints",
    "compress++": "goodpoints",
    "recombination": "goodpoints",
    "kernel herding": "coreax",
    "k-means": "scikit-learn",
}
KERNEL_FREE = ("k-means",)
Term = tuple[str, float, float, int]
WORKER = Path(__file__).with_name("worker.py")
TIME_LIMIT = 1800


def install_rivals(report: Callable[[str], None]) -> dict[str, str]:
    """Make the environment and install each library into it; one that fails does not stop the others.

    Arguments:
        report: Told what happens, a line at a time.

    Returns:
        The versions that are there afterwards.
    """
    directory = cache_directory("rivals") / "env"
    if not _python().exists():
        report(f"making {directory}")
        venv.create(directory, with_pip=True)
    for name, requirements in REQUIREMENTS.items():
        done = subprocess.run(
            [str(_python()), "-m", "pip", "install", "--quiet", *requirements],
            capture_output=True,
            text=True,
            check=False,
        )
        report(f"{name}: {'installed' if done.returncode == 0 else done.stderr.strip().splitlines()[-1:]}")
    installed_versions.cache_clear()
    return installed_versions()


@lru_cache(maxsize=1)
def installed_versions() -> dict[str, str]:
    """What the rivals' environment holds; nothing where there is none."""
    found: dict[str, str] = {}
    for name in (*REQUIREMENTS, "jax"):
        if not _python().exists():
            break
        done = subprocess.run(
            [str(_python()), str(WORKER), "versions", name], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            found |= json.loads(done.stdout)
    return found


def describe(kernel: Kernel) -> list[Term]:
    """The kernel as Gaussian terms (coefficient, bandwidth) and polynomial ones (coefficient, scale, degree).

    Example:
        >>> describe(2.0 * SquaredExponential(0.5))
        [('gaussian', 2.0, 0.5, 0)]
    """
    match kernel:
        case SquaredExponential():
            return [("gaussian", 1.0, float(kernel.bandwidth), 0)]
        case Octaves():
            return [("gaussian", a, float(k.bandwidth), 0) for a, k in kernel.components()]
        case Polynomial():
            return [("polynomial", 1.0, float(kernel.scale), kernel.degree)]
        case Sum():
            return [(kind, c * a, scale, degree) for c, k in kernel.terms for kind, a, scale, degree in describe(k)]
        case _:
            raise TypeError(f"`kernel` must be made of Gaussians and polynomials: got {type(kernel).__name__}.")


def foreign(
    rival: str,
    pool: Float[Tensor, "n d"],
    kernel: Kernel,
    m: int,
    sets: int,
    generator: torch.Generator | None = None,
) -> Rules:
    """The answer of one rival; those that read the pool's Gram matrix answer together, so that it is made once.

    The time of a rule is measured there, after compilation, with the kernel values that rule alone would need.

    Raises:
        RuntimeError: The rival failed; its last line is given.
    """
    alone = rival in KERNEL_FREE
    together, terms = ((rival,), ()) if alone else (tuple(_with_kernel()), tuple(describe(kernel)))
    found = _ask(together, pool, terms, m, sets, random_seed(generator))[rival]
    if isinstance(found, str):
        raise RuntimeError(f"{rival.capitalize()} failed: {found}")
    return found


@lru_cache(maxsize=2)
def _ask(
    rivals: tuple[str, ...], pool: Tensor, terms: tuple[Term, ...], m: int, sets: int, rng_seed: int
) -> dict[str, Rules | str]:
    """One request to the rivals' environment; what a rival failed with, where it did."""
    settings = {"rivals": rivals, "kernel": terms, "m": m, "sets": sets, "rng_seed": rng_seed}
    with tempfile.TemporaryDirectory() as directory:
        request, result = Path(directory) / "request.npz", Path(directory) / "result.npz"
        np.savez(request, pool=pool.numpy(), settings=json.dumps(settings))
        done = subprocess.run(
            [str(_python()), str(WORKER), str(request), str(result)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
        )
        _checks.answered(", ".join(rivals), done.returncode, done.stderr)
        with np.load(result, allow_pickle=False) as answer:
            return {name: _rules(answer, name) for name in rivals}


def _rules(answer: Mapping[str, np.ndarray], name: str) -> Rules | str:
    if f"{name}/failed" in answer:
        return str(answer[f"{name}/failed"])
    nodes, weights = (torch.from_numpy(answer[f"{name}/{part}"]) for part in ("nodes", "weights"))
    return Rules(nodes.to(torch.float64), weights if weights.numel() else None, float(answer[f"{name}/ms"]))


def _with_kernel() -> list[str]:
    """The installed rivals that read the pool's Gram matrix."""
    return [name for name, library in LIBRARIES.items() if name not in KERNEL_FREE and library in installed_versions()]


def _missing(library: str) -> str | None:
    if library in installed_versions():
        return None
    return f"{library} is not installed: `amsip bench posteriors --install-rivals`"


def _rival(name: str) -> Rival:
    library, takes_kernel = LIBRARIES[name], name not in KERNEL_FREE
    return Rival(name, partial(foreign, name), takes_kernel, missing=partial(_missing, library))


KERNEL_THINNING = _rival("kernel thinning")
COMPRESS = _rival("compress++")
RECOMBINATION = _rival("recombination")
HERDING = _rival("kernel herding")
K_MEANS = _rival("k-means")


def _python() -> Path:
    return cache_directory("rivals") / "env" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
