"""What is seen when, as a function of (seed, epoch) alone; so a killed run can go on where it was.

An epoch is a shuffle of the N samples, cut into ceil(N / B) batches whose sizes differ by at most
one (no tiny last batch, nothing dropped), or, as in the released code, into batches of B and the
rest. A batch is one optimiser step over all ranks: it is cut
into `accumulate` parts, each part into one share per rank. So the samples of a step do not depend
on how many devices there are.

A loader is asked for (epoch, index), and the randomness of an item (its augmentation) is a function
of (seed, epoch, index): no worker has a state that would have to be saved.
"""

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from engine.processes.parent import watch_parent
from engine.training.generators import seeded

Key = tuple[int, int]  # epoch, index


class Order(Sampler[list[Key]]):
    """The batch sampler of training: yields this rank's share of every part of every batch.

    With `epoch_size` an epoch is that many samples, the first of the shuffle; `even` says how it
    is cut. `epoch` and `start`
    (the first batch to give) are set before each pass.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int,
        accumulate: int = 1,
        rank: int = 0,
        world: int = 1,
        epoch_size: int | None = None,
        even: bool = True,
    ):
        self.size, self.seed, self.accumulate = size, seed, accumulate
        self.batch_size, self.even = batch_size, even
        self.rank, self.world = rank, world
        self.drawn = size if epoch_size is None else min(size, epoch_size)
        self.steps = -(-self.drawn // batch_size)
        self.epoch, self.start = 0, 0
        smallest = self.drawn // self.steps if even else self.drawn - (self.steps - 1) * batch_size
        if smallest < accumulate * world:
            raise ValueError(
                f"{self.drawn} samples in batches of {batch_size} leave {smallest} for a step, "
                f"which cannot be shared by {world} devices times {accumulate} accumulation parts; "
                "raise trainer.batch_size, lower trainer.accumulate or trainer.devices, or set "
                "trainer.even_batches=true."
            )

    def permutation(self) -> np.ndarray:
        """The samples of the epoch in their order."""
        return np.random.default_rng([self.seed, self.epoch]).permutation(self.size)[: self.drawn]

    def batches(self) -> list[np.ndarray]:
        """The samples of each step, over all ranks."""
        if self.even:
            return np.array_split(self.permutation(), self.steps)
        cuts = self.batch_size * np.arange(1, self.steps)
        return np.split(self.permutation(), cuts)

    def parts(self, batch: np.ndarray) -> list[np.ndarray]:
        """The accumulation parts of one batch, over all ranks."""
        return np.array_split(batch, self.accumulate)

    def share_of(self, batch_size: int) -> list[float]:
        """The weight of each accumulation part in a batch of so many samples; they sum to one."""
        return [len(part) / batch_size for part in self.parts(np.arange(batch_size))]

    def __iter__(self) -> Iterator[list[Key]]:
        for batch in self.batches()[self.start :]:
            for part in self.parts(batch):
                mine = np.array_split(part, self.world)[self.rank]
                yield [(self.epoch, int(index)) for index in mine]

    def __len__(self) -> int:
        return (self.steps - self.start) * self.accumulate


class Keyed(Dataset):
    """dataset[(epoch, index)], drawing its random numbers from (seed, epoch, index) alone."""

    def __init__(self, dataset: Any, seed: int):
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: Key) -> Any:
        epoch, index = key
        with seeded(self.seed, epoch, index):
            return self.dataset[index]


def training_loader(dataset: Dataset, order: Order, workers: int, pin: bool) -> DataLoader:
    """Batches of a dataset that is asked for (epoch, index) keys, in the given order."""
    return loader(dataset, order, workers, pin, persistent_workers=workers > 0)


def evaluation_loader(
    dataset: Any, batch_size: int, workers: int, pin: bool, rank: int, world: int, seed: int = 0
) -> DataLoader:
    """Every sample exactly once over all ranks, in order, none repeated to fill up a batch."""
    keys = [(0, index) for index in range(rank, len(dataset), world)]
    batches = [keys[start : start + batch_size] for start in range(0, len(keys), batch_size)]
    keyed = dataset if hasattr(dataset, "__getitems__") else Keyed(dataset, seed)
    return loader(keyed, batches, workers, pin)


def loader(
    dataset: Any, batches: Any, workers: int, pin: bool = False, **options: Any
) -> DataLoader:
    """The asked batches of keys, one after the other.

    A loader draws a seed whenever it is started; from a generator of its own, so that starting one
    more often, as a resumed run does, changes nothing else.
    """
    if workers:
        # Loaders of earlier runs end here: a forked worker that came upon one as garbage would
        # close its queues, and with them perhaps its own.
        gc.collect()
    return DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=_collate(dataset),
        num_workers=workers,
        pin_memory=pin,
        generator=torch.Generator(),
        worker_init_fn=_follow if workers else None,
        **options,
    )


def _follow(worker: int) -> None:
    watch_parent(os.getppid())  # torch looks every five seconds only


def _collate(dataset: Any):
    """A dataset that fetches whole batches (`__getitems__`) has them collated already."""
    return _as_it_is if hasattr(dataset, "__getitems__") else None


def _as_it_is(batch: Any) -> Any:
    return batch
