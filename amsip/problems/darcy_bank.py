"""A bank of simulated groundwater fields on disk: all cores, chunk by chunk, resumed where it was left."""

import dataclasses
import io
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip._disk import write_atomically
from amsip.problems.darcy import Darcy

CHUNK = 250
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class DarcyBank:
    """Joint draws of coefficients and readings, simulated into a folder and read back from it.

    Chunk number c draws from a generator of its own, so that a chunk is the same whoever simulates it and whenever.
    A chunk's file appears whole or not at all: a run that is killed loses at most the chunks in hand, one a worker.

    Arguments:
        folder: Where the chunks are kept.
        fields: How many joint draws.
        problem: The groundwater problem.
        rng_seed: Draws coefficients and noise.
        chunk: Fields a file.

    Raises:
        ValueError: The folder holds a bank of another problem, seed or chunk size.

    Example:
        >>> import tempfile
        >>> from amsip.problems.karhunen import KarhunenPrior
        >>> small = Darcy(KarhunenPrior(coefficients=20), grid=9, sensors=3, drives=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bank = DarcyBank(Path(folder), fields=7, problem=small, chunk=5)
        ...     bank.simulate(workers=1)
        ...     coefficients, readings = bank.read()
        >>> coefficients.shape, readings.shape
        (torch.Size([7, 20]), torch.Size([7, 18]))
    """

    folder: Path
    fields: int
    problem: Darcy = dataclasses.field(default_factory=Darcy)
    rng_seed: int = 20260612
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        _checks.at_least("fields", self.fields, 1)
        _checks.at_least("chunk", self.chunk, 1)

    @property
    def chunks(self) -> int:
        """How many files a complete bank has."""
        return -(-self.fields // self.chunk)

    def missing(self) -> list[int]:
        """The numbers of the chunks that are not there yet."""
        return [number for number in range(self.chunks) if not self.file(number).exists()]

    def file(self, number: int) -> Path:
        """Where a chunk is kept."""
        return self.folder / f"chunk-{number:05d}.npz"

    def simulate(self, *, workers: int | None = None, report: Callable[[str], None] | None = None) -> None:
        """Simulates the chunks that are missing.

        Arguments:
            workers: Processes of one thread each; one a core when not given, none but this one for 1.
            report: Told the progress, a line at a time.
        """
        self._claim()
        missing, started = self.missing(), time.monotonic()
        tell = report or _silent
        if not missing:
            return

        def progress() -> None:
            done = len(missing) - len(self.missing())
            seconds = time.monotonic() - started
            left = f", {seconds / done * (len(missing) - done):.0f} s left" if done else ""
            total = self.chunks - len(missing) + done
            tell(f"{min(total * self.chunk, self.fields)} of {self.fields} fields, {seconds:.0f} s{left}")

        count = min(workers or multiprocessing.cpu_count(), len(missing))
        if count == 1:
            for number in missing:
                self.simulate_chunk(number)
                progress()
            return
        _in_processes(self, [missing[worker::count] for worker in range(count)], progress)

    def simulate_chunk(self, number: int) -> None:
        """Simulates one chunk and writes it; whole chunks always, so that a longer bank begins with a shorter one."""
        generator = torch.Generator().manual_seed(self.rng_seed + number)
        # kept in float32: rounded before the field is solved, so that each pair is consistent
        coefficients = self.problem.prior.sample(self.chunk, generator=generator).to(torch.float32)
        readings = self.problem.observe(coefficients.to(torch.float64), generator=generator).to(torch.float32)
        buffer = io.BytesIO()
        np.savez(buffer, coefficients=coefficients.numpy(), readings=readings.numpy())
        write_atomically(self.file(number), buffer.getvalue())

    def read(self) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n readings"]]:
        """All coefficients and all readings, float32.

        Raises:
            FileNotFoundError: A chunk has not been simulated.
        """
        coefficients = torch.empty(self.fields, self.problem.dim)
        readings = torch.empty(self.fields, self.problem.readings)
        for number in range(self.chunks):
            rows = slice(number * self.chunk, min((number + 1) * self.chunk, self.fields))
            with np.load(self.file(number), allow_pickle=False) as stored:
                coefficients[rows] = torch.from_numpy(stored["coefficients"][: rows.stop - rows.start])
                readings[rows] = torch.from_numpy(stored["readings"][: rows.stop - rows.start])
        return coefficients, readings

    def _claim(self) -> None:
        """Writes what the folder holds, or makes sure that it holds this."""
        described = dataclasses.asdict(self.problem) | {"rng_seed": self.rng_seed, "chunk": self.chunk}
        path = self.folder / "bank.json"
        if not path.exists():
            write_atomically(path, json.dumps(described, indent=1).encode())
        found = json.loads(path.read_text(encoding="utf-8"))
        if found != described:
            raise ValueError(
                f"`folder` must be empty or hold this very bank: {path} describes {found}. Use another one."
            )


def _in_processes(bank: DarcyBank, shares: Sequence[list[int]], progress: Callable[[], None]) -> None:
    """One fresh process a share, watched until all are done; spawned, for threads do not survive a fork."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_work, args=(bank, share), daemon=True) for share in shares]
    for process in processes:
        process.start()
    seen = len(bank.missing())
    try:
        while any(process.is_alive() for process in processes):
            for process in processes:
                process.join(POLL_SECONDS / len(processes))
            if len(bank.missing()) < seen:
                seen = len(bank.missing())
                progress()
    finally:
        for process in processes:
            process.terminate()
            process.join()
    failed = [process.exitcode for process in processes if process.exitcode]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(processes)} workers ended with exit codes {failed}; run again.")


def _work(bank: DarcyBank, share: Sequence[int]) -> None:
    """What a worker does: its chunks, unless the process that started it is gone."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    for number in share:
        if parent is not None and not parent.is_alive():
            return
        bank.simulate_chunk(number)


def _silent(line: str) -> None:
    """Tells nobody."""
