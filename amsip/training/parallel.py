"""Data-parallel training: the same program on each rank, as `torchrun` starts it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Which of the processes this is."""
    return dist.get_rank() if _joined() else 0


def size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _joined() else 1


@contextmanager
def joined() -> Iterator[None]:
    """Joins the processes that `torchrun` started, if it did."""
    if _joined() or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def share(tensors: list[Tensor]) -> None:
    """Everyone gets the first rank's values, in place."""
    if size() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, 0)


def summed(values: Tensor) -> Tensor:
    """The sum over ranks, the same on each."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def gathered(values: Tensor) -> list[Tensor]:
    """The tensors of all ranks."""
    if size() == 1:
        return [values]
    parts = [torch.empty_like(values) for _ in range(size())]
    dist.all_gather(parts, values)
    return parts


def own_stream(generator: torch.Generator) -> None:
    """Ranks that share a generator's state go separate ways from here."""
    if size() > 1:
        starts = torch.randint(2**62, (size(),), generator=generator)
        generator.manual_seed(int(starts[rank()]))


def wait() -> None:
    """Until all ranks are here."""
    if size() > 1:
        dist.barrier()


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()
