"""A first, cheap look at a reference of many atoms."""

import torch

from amsip.references.base import Embedding
from amsip.references.embeddings import AtomsEmbedding, SumEmbedding, WhitenedEmbedding


def thinned(embedding: Embedding, atoms: int) -> Embedding:
    """The same embedding from every so manieth of its atoms, where it has many more and all weigh the same.

    The moments stay those of all atoms.

    Arguments:
        embedding: Under any kernel.
        atoms: How many are enough; at least so many are kept, and fewer than twice as many.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> thinned(Samples(torch.zeros(1000, 2)).embed(SquaredExponential(1.0)), 300).atoms.shape
        torch.Size([334, 2])
    """
    match embedding:
        case SumEmbedding():
            parts = tuple((c, thinned(part, atoms)) for c, part in embedding.parts)
            return SumEmbedding(embedding.kernel, embedding.moments, parts)
        case WhitenedEmbedding():
            return WhitenedEmbedding(embedding.kernel, embedding.moments, thinned(embedding.inner, atoms))
        case AtomsEmbedding():
            return _thinned_atoms(embedding, atoms)
        case _:
            return embedding


def _thinned_atoms(embedding: AtomsEmbedding, atoms: int) -> AtomsEmbedding:
    stride = embedding.atoms.shape[-2] // atoms
    equal = bool((embedding.weights == embedding.weights[..., :1]).all())
    if stride < 2 or not equal:
        return embedding
    kept = embedding.atoms[..., ::stride, :]
    return AtomsEmbedding(
        embedding.kernel, embedding.moments, kept, torch.full_like(kept[..., 0], 1.0 / kept.shape[-2])
    )
