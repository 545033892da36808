"""Order of the training samples and random numbers, so that a run can resume exactly.

An epoch is a shuffle of the N samples by (seed, epoch), split into ceil(N / B) batches whose sizes
differ by at most one (no tiny last batch, nothing dropped), or, as in the released code, into
batches of B and the rest. A batch is one optimiser step over all ranks. It is split into
`accumulate` micro-batches, and each of these into one share per rank, so the samples of a step do
not depend on the devices.

A loader gets keys (epoch, index), and the randomness of an item (its augmentation) is a function of
(seed, epoch, index). Workers have no state that would have to be saved.
"""

import gc
import io
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from omegaconf import DictConfig
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

Key = tuple[int, int]  # epoch, index


class Order(Sampler[list[Key]]):
    """Batch sampler of training: yields this rank's share of each micro-batch.

    Arguments:
        size: number of training samples.
        batch_size: largest number of samples in a step, over all ranks.
        epoch_size: samples in an epoch, the first ones of the shuffle; all by default.
        even: whether batch sizes differ by at most one; otherwise the last batch is the rest.

    `epoch` and `start` (the first batch) are set before each pass.
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
        self.rank, self.world = rank, world
        self.epoch, self.start = 0, 0
        self.epoch_size = total = size if epoch_size is None else min(size, epoch_size)
        self.steps = -(-total // batch_size)
        self.cuts: Any = self.steps if even else batch_size * np.arange(1, self.steps)
        smallest = total // self.steps if even else total - (self.steps - 1) * batch_size
        if smallest < accumulate * world:
            raise ValueError(
                f"{total} samples in batches of {batch_size} leave {smallest} for a step, "
                f"which cannot be shared by {world} devices times {accumulate} accumulation steps; "
                "raise trainer.batch_size, lower trainer.accumulate or trainer.devices, or set "
                "trainer.even_batches=true."
            )

    def batches(self) -> list[np.ndarray]:
        """Return the samples of each step of the epoch, over all ranks."""
        shuffle = np.random.default_rng([self.seed, self.epoch]).permutation(self.size)
        return np.array_split(shuffle[: self.epoch_size], self.cuts)

    def __iter__(self) -> Iterator[list[Key]]:
        for batch in self.batches()[self.start :]:
            for part in np.array_split(batch, self.accumulate):
                mine = np.array_split(part, self.world)[self.rank]
                yield [(self.epoch, int(index)) for index in mine]

    def __len__(self) -> int:
        return (self.steps - self.start) * self.accumulate


def order(cfg: DictConfig, samples: int, rank: int = 0, world: int = 1) -> Order:
    """Return the order in which this rank sees its share of the training samples."""
    t = cfg.trainer
    shares = (t.accumulate, rank, world)
    return Order(samples, t.batch_size, cfg.seed, *shares, t.epoch_size, t.even_batches)


class Keyed(Dataset):
    """The items of (epoch, index) keys; each takes its random numbers from (seed, epoch, index).
    If `together` is 2, a batch has two views of each, with different random numbers."""

    def __init__(self, dataset: Any, seed: int):
        self.dataset, self.seed, self.together = dataset, seed, 1

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: Sequence[Key]) -> list[Any]:
        """Return the items, and leave the random generators as they were."""
        state, items = _generator_state(gpus=False), []
        views = [(*key, *[view] * (view > 0)) for view in range(self.together) for key in keys]
        try:
            for key in views:
                seed_all(self.seed, *key, gpus=False)
                items.append(self.dataset[key[1]])
        finally:
            restore_generators(state)
        return items


def evaluation_loader(
    dataset: Any, batch_size: int, workers: int, pin: bool, rank: int, world: int
) -> DataLoader:
    """Load every sample exactly once over all ranks, in order, without padding."""
    keys = [(0, index) for index in range(rank, len(dataset), world)]
    batches = [keys[start : start + batch_size] for start in range(0, len(keys), batch_size)]
    keyed = dataset if hasattr(dataset, "__getitems__") else Keyed(dataset, 0)
    return loader(keyed, batches, workers, pin)


def loader(dataset: Any, batches: Any, workers: int, pin: bool = False) -> DataLoader:
    """Load batches of keys from a Keyed dataset or a FeatureTable, which returns whole batches.

    A DataLoader takes a seed from its generator whenever it starts. It gets a separate one, so that
    a resumed run, which starts it more often, sees the same random numbers.
    """
    if workers:
        # Free the loaders of earlier runs: a forked worker that collected one as garbage would
        # close its queues, and perhaps those of the worker itself.
        gc.collect()
    return DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=default_collate if isinstance(dataset, Keyed) else dict,
        num_workers=workers,
        pin_memory=pin,
        generator=torch.Generator(),
        persistent_workers=workers > 0 and isinstance(batches, Order),
    )


def seed_all(*key: int, gpus: bool = True) -> None:
    """Seed every generator with numbers that belong to a key."""
    high, low = np.random.SeedSequence(key).generate_state(2).tolist()
    (torch if gpus else torch.default_generator).manual_seed((high << 32 | low) >> 1)
    np.random.seed(high)  # noqa: NPY002  (torchvision and OpenCV code may use it)
    random.seed(low)


def generator_states(fabric: Fabric) -> list[dict[str, Any]]:
    """Return the state of every rank's generators, as tensors and plain containers."""
    state = _generator_state(gpus=torch.cuda.is_available())
    if fabric.world_size == 1:
        return [state]
    buffer, gathered = io.BytesIO(), [b""] * fabric.world_size
    torch.save(state, buffer)
    torch.distributed.all_gather_object(gathered, buffer.getvalue())
    return [torch.load(io.BytesIO(data), weights_only=True) for data in gathered]


def _generator_state(gpus: bool) -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if gpus else [],
        "numpy": [kind, torch.from_numpy(np.array(keys)), *rest],
        "python": random.getstate(),
    }


def restore_generators(state: dict[str, Any]) -> None:
    """Set the generators of this process to a saved state."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy(), *rest))  # noqa: NPY002
    version, words, extra = state["python"]
    random.setstate((version, tuple(words), extra))
