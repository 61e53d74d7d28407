"""Every error a user can cause is written here: one sentence, what must hold, what came, what to do."""

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ArrayLike = Tensor | np.ndarray | Sequence

MAX_NODES = 4096


class NumericalError(ArithmeticError):
    """A factorisation failed; the message carries the jitter, the conditioning and the closest pair of nodes.

    Example:
        >>> issubclass(NumericalError, ArithmeticError)
        True
    """


def floating(name: str, values: object) -> Tensor:
    """The values as a floating-point tensor: integers and lists become float64, arrays keep single or double precision.

    Half precision becomes single: no moment and no distance can be worked out in it.
    """
    try:
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(plain_array(np.asarray(values)))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"`{name}` must be an array of numbers: got {type(values).__name__} ({error}).") from None
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"`{name}` must be real numbers: got dtype {tensor.dtype}.")
    if not tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor.to(torch.float32) if tensor.element_size() < 4 else tensor


def plain_array(array: np.ndarray) -> np.ndarray:
    """The array itself where torch can read its memory; else a copy in native order, in double precision at most."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return native if native.flags.writeable and min(native.strides, default=0) >= 0 else native.copy()


def points(name: str, values: object) -> Tensor:
    """A non-empty, finite `(..., n, d)` tensor."""
    tensor = floating(name, values)
    if tensor.ndim < 2:
        raise ValueError(
            f"`{name}` must have shape (..., n, d): got {tuple(tensor.shape)}. "
            "For n draws of one parameter pass `values[:, None]`."
        )
    if 0 in tensor.shape:
        raise ValueError(f"`{name}` must hold at least one point and one coordinate: got shape {tuple(tensor.shape)}.")
    finite = torch.isfinite(tensor).all(-1)
    if not finite.all():
        row = [int(i) for i in torch.nonzero(~finite)[0]]
        bad = int((~finite).sum())
        raise ValueError(
            f"`{name}` must be finite: row {row[0] if len(row) == 1 else tuple(row)} is not "
            f"({bad} of {finite.numel()} rows). Drop them first, e.g. `x[torch.isfinite(x).all(-1)]`."
        )
    return tensor


def vector(name: str, values: object) -> Tensor:
    """A non-empty, finite `(..., d)` tensor."""
    tensor = floating(name, values)
    if tensor.ndim < 1 or 0 in tensor.shape:
        raise ValueError(f"`{name}` must have shape (..., d) with at least one coordinate: got {tuple(tensor.shape)}.")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"`{name}` must be finite: {int((~torch.isfinite(tensor)).sum())} entries are not.")
    return tensor


def sample_weights(name: str, values: object, atoms: Tensor) -> Tensor:
    """Non-negative weights, one per atom, with a positive total; returned normalised to one."""
    weights = floating(name, values).to(atoms)
    if weights.shape != atoms.shape[:-1]:
        raise ValueError(
            f"`{name}` must have one entry per sample: got {tuple(weights.shape)} for samples {tuple(atoms.shape)}."
        )
    if not torch.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"`{name}` must be finite and non-negative: smallest is {weights.min().item():.3g}.")
    total = weights.sum(-1, keepdim=True)
    if (total <= 0).any():
        raise ValueError(f"`{name}` must have a positive sum: got {total.min().item():.3g}.")
    return weights / total


def spread_in_range(name: str, cov: Tensor, atoms: Tensor) -> None:
    """A covariance, worked out in double precision, that the draws' own precision can hold."""
    limits = torch.finfo(atoms.dtype)
    variance = cov.diagonal(dim1=-2, dim2=-1)
    low = variance < limits.tiny
    if bool(low.any()):
        # rounding of a constant coordinate, and all weight on one draw, are no spread
        low = low & (variance.sqrt() > 4.0 * limits.eps * atoms.abs().amax(-2))
    out = low | ~(variance <= limits.max)
    if bool(out.any()):
        place = [int(i) for i in torch.nonzero(out)[0]]
        spread = variance[tuple(place)].sqrt().item()
        raise ValueError(
            f"`{name}` must have a spread whose square {str(atoms.dtype).removeprefix('torch.')} can hold: the "
            f"standard deviation of coordinate {place[-1]} is {spread:.3g}. Use another unit."
        )


def budget(m: object, limit: int = MAX_NODES) -> int:
    """A number of nodes between 1 and `limit`."""
    if isinstance(m, bool) or not isinstance(m, int | np.integer):
        raise TypeError(f"`m`, the number of nodes, must be an int: got {m!r}.")
    if not 1 <= m <= limit:
        raise ValueError(f"`m`, the number of nodes, must be between 1 and {limit}: got {m}.")
    return int(m)


def budgets(values: object) -> tuple[int, ...]:
    """At least one number of nodes."""
    if not isinstance(values, Iterable):
        raise TypeError(f"`budgets` must be a sequence of numbers of nodes: got {values!r}.")
    counts = tuple(budget(m) for m in values)
    if not counts:
        raise ValueError("`budgets` must hold at least one number of nodes: got none.")
    return counts


def randomness(generator: object) -> None:
    """A source of randomness, or none."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"`generator` must be a torch.Generator: got {type(generator).__name__}. "
            "From a number: `torch.Generator().manual_seed(0)`."
        )


def positive(name: str, value: float | Tensor) -> None:
    """A finite positive scalar, or a tensor of them."""
    values = torch.as_tensor(value)
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        shown = values.item() if values.numel() == 1 else values.min().item()
        raise ValueError(f"`{name}` must be finite and positive: got {shown:.6g}.")


def at_least(name: str, value: float, least: float) -> None:
    """A finite number no smaller than `least`."""
    if not (math.isfinite(value) and value >= least):
        raise ValueError(f"`{name}` must be at least {least}: got {value!r}.")


def one_of(name: str, value: object, choices: Sequence[object]) -> None:
    """One of a short list of values."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {list(choices)}: got {value!r}.")


def same_queries(name: str, values: Sequence[int], queries: Sequence[int]) -> None:
    """Query axes that agree, or none, so that one set serves all."""
    if len(queries) and tuple(values) != tuple(queries):
        raise ValueError(f"`{name}` must have the query axes of the draws, {tuple(queries)}: got {tuple(values)}.")


def same_dim(name: str, values: Tensor, dim: int) -> None:
    """Points of the dimension the other argument has."""
    if values.shape[-1] != dim:
        raise ValueError(f"`{name}` must have {dim} coordinates: got shape {tuple(values.shape)}.")


def one_weight_per_node(nodes: Tensor, weights: Tensor) -> None:
    """Weights that match their nodes."""
    if weights.shape != nodes.shape[:-1]:
        raise ValueError(
            f"`weights` must have one entry per node: got {tuple(weights.shape)} for nodes {tuple(nodes.shape)}. "
            "Compute them with `optimal_weights(nodes, embedding)`."
        )


def factorised(failures: Tensor, gram: Tensor, jitter: float, distance: Tensor | None = None) -> None:
    """Raise `NumericalError` for the first query whose factorisation failed."""
    if not bool((failures > 0).any()):
        return
    query = int(torch.nonzero(failures.reshape(-1) > 0)[0])
    matrix = gram.reshape(-1, *gram.shape[-2:])[query]
    if not torch.isfinite(matrix).all():
        raise NumericalError(f"The Gram matrix of query {query} is not finite: check the nodes and the bandwidth.")
    spectrum = torch.linalg.eigvalsh(matrix)
    condition = (spectrum[-1] / spectrum[0].abs().clamp_min(1e-300)).item()
    closest = "" if distance is None else f", smallest node distance {distance.min().item():.3g}"
    raise NumericalError(
        f"The Gram matrix of query {query} could not be factorised: jitter {jitter:.3g}, "
        f"condition number {condition:.3g}{closest}. Use a larger `jitter`, fewer nodes, or separate the nodes."
    )


def covariance(name: str, values: object, means: Tensor) -> Tensor:
    """Symmetric positive definite matrices, one per mean."""
    covs = floating(name, values).to(means)
    if covs.shape != (*means.shape, means.shape[-1]):
        raise ValueError(f"`{name}` must have shape {(*means.shape, means.shape[-1])}: got {tuple(covs.shape)}.")
    asymmetry = (covs - covs.mT).abs().amax((-2, -1))
    size = covs.abs().amax((-2, -1))
    if bool((asymmetry > 1e-5 * size).any()):
        raise ValueError(
            f"`{name}` must be symmetric: entries differ by {asymmetry.max().item():.3g}. Use (S + S.mT) / 2."
        )
    if not torch.isfinite(covs).all() or bool((torch.linalg.cholesky_ex(covs)[1] > 0).any()):
        raise ValueError(f"`{name}` must be finite, symmetric and positive definite: a Cholesky factor does not exist.")
    return covs


def values(name: str, found: object) -> Tensor:
    """Values of an integrand: a tensor as it is, anything else as an array of real numbers or of yes and no."""
    if isinstance(found, Tensor):
        return found
    array = np.asarray(found)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"The values of `{name}` must be real numbers: got {type(found).__name__} of {array.dtype}.")
    return torch.as_tensor(plain_array(array))


def values_at_nodes(values: Tensor, weights: Tensor) -> Tensor:
    """Values computed beforehand, one (or k) per node."""
    if values.shape[: weights.ndim] != weights.shape or values.ndim > weights.ndim + 1:
        raise ValueError(
            f"The values of `f` must have shape {tuple(weights.shape)} or {(*weights.shape, 'k')}: "
            f"got {tuple(values.shape)}."
        )
    return values


def values_of_integrand(values: Tensor, nodes: Tensor) -> None:
    """What an integrand returned on `(n, d)` points."""
    if values.ndim not in (1, 2) or values.shape[0] != nodes.shape[0]:
        raise ValueError(
            f"`f` must map points of shape {tuple(nodes.shape)} to {(nodes.shape[0],)} or {(nodes.shape[0], 'k')}: "
            f"it returned {tuple(values.shape)}."
        )


def checksum(path: Path, found: str, expected: str) -> None:
    """A fetched file is the one that was meant."""
    if found != expected:
        raise ValueError(
            f"`{path.name}` must have SHA-256 {expected[:12]}...: got {found[:12]}... Delete {path} and run again."
        )


def fetched(what: str, path: Path, command: str, output: str) -> None:
    """A download that left its file."""
    if not path.exists():
        reason = output.strip().splitlines()[-1] if output.strip() else "no message"
        raise ConnectionError(
            f"{what.capitalize()} must be in {path.parent} and could not be fetched ({reason}): on a machine with a "
            f"network run `{command}`, then copy {path.name} there."
        )


def more_than_one_sample(samples: Tensor) -> None:
    """At least two samples, where distances between them are asked for."""
    if samples.shape[-2] < 2:
        raise ValueError(
            f"`samples` must hold at least two draws: got shape {tuple(samples.shape)}. Give the bandwidth as a number."
        )


def distinct_samples(median: Tensor) -> None:
    """A positive median distance, in every query."""
    if bool((median <= 0).any()):
        query = int(torch.nonzero(median.reshape(-1) <= 0)[0])
        raise ValueError(
            f"`samples` must be mostly distinct: half the pairs of query {query} coincide, so no bandwidth follows "
            "from them. Drop duplicates, or give the bandwidth as a number."
        )


def whole_heads(width: int, heads: int) -> None:
    """A hidden width that attention heads divide."""
    if heads < 1 or width < 1 or width % heads:
        raise ValueError(f"`width` must be a positive multiple of `heads`: got width {width} for {heads} heads.")


def ends_with(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    """A tensor whose last axes are those of one item, possibly after axes of queries."""
    if values.shape[values.ndim - len(shape) :] != shape:
        raise ValueError(f"`{name}` must end with the axes {shape}: got shape {tuple(values.shape)}.")


def known_keys(where: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Only settings that exist; the nearest one is suggested for the first that does not."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known are {sorted(known)}."
            raise ValueError(f"`{key}` is not a setting of {where}: {hint}")


def trainable(parameters: int) -> None:
    """A map with something to fit."""
    if not parameters:
        raise TypeError("`node_map` must be a torch module with parameters that require gradients: it has none.")


def fitting(path: Path, expected: Sequence[str], found: Sequence[str]) -> None:
    """A file that holds the tensors of the object it is read into."""
    wrong = sorted(set(expected) ^ set(found))
    if wrong:
        raise ValueError(
            f"{path} must hold the tensors of this map: `{wrong[0]}` is {'missing' if wrong[0] in expected else 'new'} "
            f"({len(wrong)} in all differ). Give the settings it was written with, or another path."
        )


def finite_loss(step: int, skipped: int, limit: int, reason: str) -> None:
    """A training run with at most `limit` steps whose loss could not be computed."""
    if skipped > limit:
        raise NumericalError(
            f"Step {step} has no finite loss or gradient ({skipped} such steps, `max_skipped` allows {limit}): lower "
            f"`lr`, set `clip`, or use a larger jitter in the loss or references in float64. {reason}".rstrip()
        )


def above_zero(name: str, value: float | Tensor) -> None:
    """A positive number, or a tensor of them; infinity is welcome."""
    if not bool((torch.as_tensor(value) > 0).all()):
        raise ValueError(f"`{name}` must be positive: got {value!r}.")


def below(name: str, value: float, bound: float) -> None:
    """A number strictly below a bound."""
    if not value < bound:
        raise ValueError(f"`{name}` must be below {bound}: got {value!r}.")


def setting(name: str, value: object, kind: object) -> Any:
    """A value of a configuration file, of the kind its setting has; integers may stand for floats."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(kind, type) or type(value) is not kind:
        raise TypeError(f"`{name}` must be of type {getattr(kind, '__name__', kind)}: got {value!r}.")
    return value


def constraints_met(residual: Tensor, weights: Tensor) -> None:
    """Linear constraints that the weights could satisfy."""
    allowed = 1e-8 * (1.0 + torch.linalg.vector_norm(weights, dim=-1, keepdim=True))
    if not bool((residual.abs() <= allowed).all()):
        raise NumericalError(
            f"The exactness constraints must be within reach of the nodes: the weights miss them by "
            f"{residual.abs().max().item():.3g}. Use a lower `exact`, or nodes that span every coordinate."
        )


def unsettled_simplex(nodes: int) -> NumericalError:
    """What to raise when the active set of the non-negative weights keeps changing."""
    return NumericalError(
        f"The non-negative weights of {nodes} nodes must settle on a set of nodes: they did not. "
        "Use a larger `jitter`, or separate the nodes."
    )


def finite_mean(mean: Tensor) -> None:
    """A kernel mean without NaN or infinity."""
    finite = torch.isfinite(mean).all(-1)
    if not bool(finite.all()):
        query = int(torch.nonzero(~finite.reshape(-1))[0])
        raise NumericalError(
            f"The kernel mean must be finite at the nodes: query {query} is not. Check the nodes and the bandwidth."
        )


def positive_total(total: Tensor) -> None:
    """Weights that can be rescaled to a positive sum."""
    if not bool((total > 0).all()):
        raise NumericalError(
            f"The mean-shift weights must have a positive sum to be rescaled: got {total.min().item():.3g}. "
            "Use `optimal_weights`, or fewer nodes."
        )


def non_negative_weights(weights: Tensor, purpose: str) -> None:
    """Weights that make a rule a probability measure."""
    if bool((weights < 0).any()):
        share = (weights < 0).to(torch.float64).mean().item()
        raise ValueError(
            f"A rule needs non-negative weights {purpose}: {100.0 * share:.0f}% are negative. Signed weights are for "
            "averages; re-solve with `simplex_weights(rule.nodes, rule.embedding)` and make a `Rule` of those."
        )
    if not bool((weights.sum(-1) > 0).all()):
        raise ValueError(f"A rule needs weights with a positive sum {purpose}: got {weights.sum(-1).min().item():.3g}.")


def poolable(rules: Sequence[Tensor]) -> None:
    """Rules of one shape."""
    shapes = [tuple(nodes.shape) for nodes in rules]
    if not shapes:
        raise ValueError("`rules` must hold at least one rule: got none.")
    if len(set(shapes)) > 1:
        raise ValueError(f"`rules` must have nodes of one shape: got {shapes[:4]}. Emit them with the same `m`.")


def pooled(batches: int) -> None:
    """A rule made of at least two independent emissions."""
    if batches < 2:
        raise ValueError(
            f"A standard error needs at least two pooled emissions: got {batches}. "
            "Pool rules of independent seeds, `pool([rule_1, rule_2])`."
        )


def one_query(shape: Sequence[int]) -> None:
    """A rule without query axes."""
    if len(shape):
        raise ValueError(f"Only a rule of one query is iterated: got query axes {tuple(shape)}. Take `rule.query(0)`.")


def probabilities(values: Tensor) -> None:
    """Levels between 0 and 1, in a row."""
    if values.ndim > 1 or not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError(f"`levels` must be numbers between 0 and 1: got {values.tolist()}.")


def joint_draws(parameters: Tensor, observations: Tensor) -> None:
    """A dataset of pairs: as many observations as parameters."""
    if parameters.ndim != 2 or observations.ndim != 2 or len(parameters) != len(observations):
        raise ValueError(
            "`parameters` (n, d) and `observations` (n, k) must be pairs: "
            f"got {tuple(parameters.shape)} and {tuple(observations.shape)}."
        )


def share(name: str, value: float) -> None:
    """A number in (0, 1]."""
    if not 0.0 < value <= 1.0:
        raise ValueError(f"`{name}` must be in (0, 1]: got {value!r}.")


def drawn_shape(draws: Tensor, n: int, dim: int) -> None:
    """What a sampling callable returned when asked for n draws."""
    if draws.ndim < 2 or draws.shape[-2:] != (n, dim):
        raise ValueError(
            f"`draw(n, generator)` must return shape (..., n, d): asked for n = {n} with d = {dim}, "
            f"got {tuple(draws.shape)}."
        )


def rejected_share(rejected: Tensor, limit: float) -> None:
    """Refuse a sampler most of whose draws have to be thrown away."""
    if bool((rejected > limit).any()):
        query = int(rejected.reshape(-1).argmax())
        raise ValueError(
            f"`draw` must return finite, bounded draws: {rejected.max().item():.1%} were rejected in query {query}, "
            f"more than `limit` = {limit:.1%}. Fix the sampler, or raise `bound` or `limit`."
        )


def enough_draws(accepted: int, wanted: int, rejected: Tensor) -> None:
    """Topping up has an end."""
    if accepted < wanted:
        raise ValueError(
            f"`draw` must return finite, bounded draws: {accepted} of {wanted} after every round, "
            f"{rejected.max().item():.1%} rejected. Fix the sampler, or raise `bound` or `rounds`."
        )


class FileFormatError(ValueError):
    """A file is not what it should be; the message names the file and what is wrong with it.

    Example:
        >>> issubclass(FileFormatError, ValueError)
        True
    """


def existing_file(path: Path) -> None:
    """A file that is there."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file '{path}'.")


def file_size(path: Path, size: int, limit: int) -> None:
    """A file of a size that fits in memory."""
    if size > limit:
        raise FileFormatError(f"'{path}' unpacks to {size / 1e9:.1f} GB, above the limit of {limit / 1e9:.1f} GB.")


def one_name_per_coordinate(names: Sequence[str], dim: int) -> None:
    """Either no names or one for each coordinate."""
    if len(names) not in (0, dim):
        raise ValueError(f"`names` must have one entry per parameter: got {len(names)} for {dim} parameters.")


def stored_rule(path: str, nodes: Tensor, weights: Tensor) -> None:
    """Nodes and weights that were read from a file and fit each other."""
    if not (nodes.is_floating_point() and weights.is_floating_point() and nodes.ndim >= 2):
        raise FileFormatError(f"'{path}' is not a rule: nodes {tuple(nodes.shape)} {nodes.dtype}.")
    if weights.shape != nodes.shape[:-1]:
        raise FileFormatError(f"'{path}' is not a rule: {tuple(weights.shape)} weights for {tuple(nodes.shape)} nodes.")


def rank(value: int, dim: int) -> None:
    """A number of directions that fits the space."""
    if not 1 <= value <= dim:
        raise ValueError(f"`rank` must be between 1 and the dimension {dim}: got {value}.")


def informative(spectrum: Tensor) -> None:
    """A spectrum with something in it."""
    if not bool(spectrum.sum() > 0):
        raise ValueError("`spectrum` must have a positive eigenvalue: no direction is informed.")


def slices(value: int, draws: int) -> None:
    """A power of two, with enough draws in each cell for two halves."""
    if value < 2 or value & (value - 1) or draws // value < 4:
        raise ValueError(
            f"`slices` must be a power of two with at least four of the {draws} draws in each: got {value}."
        )


def catalogued(name: str, kinds: Sequence[str], described: bool) -> None:
    """A map whose constructor can be called again from a file."""
    if not kinds or not described:
        raise TypeError(
            f"`node_map` must be a map of `amsip.maps.catalogue`, with `settings`: got {name}. "
            "Save its `state_dict()` yourself, or add it to the catalogue."
        )


def weights_found(name: str, path: Path, card: Path, shipped: Sequence[str]) -> None:
    """Weights and their card, both there."""
    if not path.exists() or not card.exists():
        missing = card if path.exists() else path
        raise FileNotFoundError(
            f"There are no weights '{name}': {missing.name} does not exist. Shipped are {list(shipped)}; "
            "of your own give the path of the .safetensors file."
        )


def schema(path: Path, found: object, expected: int) -> None:
    """A file of the format this version reads."""
    if found != expected:
        raise ValueError(f"{path} must be of schema {expected}: got {found}. Use the version of amsip that wrote it.")


def answered(name: str, returncode: int, output: str) -> None:
    """A program of another environment that ended well."""
    if returncode != 0:
        last = (output.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{name.capitalize()} failed ({returncode}): {last}")


def function_path(path: str, name: str, known: Sequence[str]) -> None:
    """A known family, or a function as "package.module:function"."""
    if not name:
        raise ValueError(f'`family` must be one of {list(known)} or "package.module:function": got {path!r}.')


def has_keys(where: str, given: Sequence[str], needed: Sequence[str]) -> None:
    """Every setting that has no default."""
    missing = [key for key in needed if key not in given]
    if missing:
        raise ValueError(f"{where} must set `{missing[0]}`: got {sorted(given)}.")


def finite_weights(weights: Tensor) -> None:
    """Weights without NaN or infinity."""
    if not bool(torch.isfinite(weights).all()):
        bad = int((~torch.isfinite(weights)).sum())
        raise ValueError(f"`weights` must be finite: {bad} of {weights.numel()} are not.")


def conditioned(source: object, bare: type) -> None:
    """A dataset of pairs that was given its observation."""
    if isinstance(source, bare):
        raise TypeError(
            f"A `{bare.__name__}` must be given an observation before it is a posterior: "
            "pass `conditional.given(observation)`."
        )


def instance(name: str, value: object, kind: type, example: str) -> None:
    """An object of one of the library's abstract types."""
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` must be a {kind.__name__}, such as `{example}`: got {_called(value)}.")


def a_function(name: str, value: object, example: str) -> None:
    """Something that can be called; a class would only be made, not called."""
    if isinstance(value, type) or not callable(value):
        raise TypeError(f"`{name}` must be a function or a map, such as `{example}`: got {_called(value)}.")


def _called(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def no_sample_weights(weights: object) -> None:
    """A reference that already carries its weights."""
    if weights is not None:
        raise ValueError("`sample_weights` must come with draws: a Reference carries its own. Use `Samples(draws, w)`.")


def ordered(name: str, low: float | Tensor, high: float | Tensor) -> None:
    """The two ends of a box."""
    if not bool((torch.as_tensor(low) < torch.as_tensor(high)).all()):
        raise ValueError(f"`{name}` must be a lower end below an upper one in every coordinate: got {(low, high)}.")


def one_more(name: str, items: Iterator[Any]) -> Any:
    """The next item of a sequence that must be long enough."""
    for item in items:
        return item
    raise ValueError(f"`{name}` must hold one task for each step: they ended early. Pass a callable, or set `steps`.")


def moved_nodes(moved: object, seeds: Tensor) -> None:
    """What a map returned for seeds: as many nodes."""
    if not isinstance(moved, Tensor) or moved.shape != seeds.shape:
        got = tuple(moved.shape) if isinstance(moved, Tensor) else type(moved).__name__
        raise ValueError(f"`node_map` must return nodes of the shape of its seeds, {tuple(seeds.shape)}: got {got}.")


def one_score_per_node(scores: Tensor, nodes: Tensor) -> None:
    """Finite scores of the nodes' own shape."""
    if scores.shape != nodes.shape or not bool(torch.isfinite(scores).all()):
        raise ValueError(
            f"`score` must return a finite {tuple(nodes.shape)} array at the nodes: got {tuple(scores.shape)}"
            f"{'' if bool(torch.isfinite(scores).all()) else ' with entries that are not finite'}."
        )
