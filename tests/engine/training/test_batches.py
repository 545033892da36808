"""Order is a function of (seed, epoch), an item's randomness of (seed, epoch, index)."""

import gc
import random
from multiprocessing import active_children

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.training.batches import Keyed, Order, evaluation_loader, loader


def keys(order: Order, epoch: int = 0, start: int = 0) -> list:
    order.epoch, order.start = epoch, start
    return list(order)


@given(
    size=st.integers(12, 300),
    batch=st.integers(12, 64),
    accumulate=st.integers(1, 3),
    world=st.integers(1, 2),
)
def test_a_step_has_the_same_samples_whatever_the_devices(size, batch, accumulate, world):
    """Every sample once, in batches of one size, each shared by all ranks."""
    orders = [Order(size, batch, 0, accumulate, rank, world) for rank in range(world)]
    shares = [keys(order, epoch=2) for order in orders]
    assert all(len(part) > 0 for share in shares for part in share)
    joined = [sum(parts, []) for parts in zip(*shares, strict=True)]  # noqa: RUF017
    assert joined == keys(Order(size, batch, 0, accumulate), epoch=2)
    assert len(joined) == len(orders[0])
    assert sorted(index for part in joined for _, index in part) == list(range(size))
    sizes = [len(b) for b in orders[0].batches()]
    assert max(sizes) <= batch
    assert max(sizes) - min(sizes) <= 1


def test_order_depends_on_seed_and_epoch_only_and_can_start_anywhere():
    order = Order(40, 8, seed=1)
    assert keys(order, epoch=1) == keys(Order(40, 8, seed=1), epoch=1)
    assert keys(order, epoch=1) != keys(order, epoch=2)
    assert keys(order, epoch=1) != keys(Order(40, 8, seed=2), epoch=1)
    assert keys(order, epoch=1, start=3) == keys(order, epoch=1)[3:]
    part = Order(100, 16, seed=0, epoch_size=40)
    first, second = ({i for batch in keys(part, epoch) for _, i in batch} for epoch in (0, 1))
    assert len(first) == len(second) == 40
    assert first != second
    assert part.steps == 3


def test_full_batches_and_the_rest():
    order = Order(50, 16, seed=3, even=False)
    even = Order(50, 16, seed=3)
    assert [len(batch) for batch in order.batches()] == [16, 16, 16, 2]
    assert [len(batch) for batch in even.batches()] == [13, 13, 12, 12]
    np.testing.assert_array_equal(np.concatenate(order.batches()), np.concatenate(even.batches()))
    with pytest.raises(ValueError, match=r"leave 2 for a step.*4 devices.*even_batches=true"):
        Order(50, 16, seed=3, world=4, even=False)
    with pytest.raises(ValueError, match=r"leave 3 for a step.*raise trainer.batch_size"):
        Order(12, 3, 0, world=4)


class Noise:
    """Dataset of random numbers of all three generators."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict:
        numbers = [torch.rand(()).item(), np.random.rand(), random.random()]  # noqa: NPY002
        return {"input": torch.tensor([index, *numbers])}


def item(dataset: Keyed, epoch: int, index: int) -> torch.Tensor:
    return dataset.__getitems__([(epoch, index)])[0]["input"]


@pytest.mark.parametrize("workers", [0, 2])
def test_randomness_belongs_to_the_key_not_to_the_worker(workers: int):
    dataset = Keyed(Noise(), seed=5)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    rows = torch.cat([batch["input"] for batch in loader(dataset, Order(8, 4, seed=0), workers)])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002
    for row in rows:
        assert torch.equal(row, item(dataset, 0, int(row[0])))
    assert not torch.equal(item(dataset, 0, 1), item(dataset, 1, 1))
    assert not torch.equal(item(dataset, 0, 1), item(Keyed(Noise(), seed=6), 0, 1))
    dataset.together = 2
    one, other = (item["input"] for item in dataset.__getitems__([(0, 1)]))
    assert one[0] == other[0] == 1
    assert not torch.equal(one, other)  # two views of a sample
    # Published numbers depend on these streams.
    expected = [1.0, 0.4851321, 0.6556157, 0.0861546]  # of the first version
    np.testing.assert_allclose(item(dataset, 0, 1), expected, rtol=1e-5)


def test_an_old_loader_ends_before_another_starts(monkeypatch: pytest.MonkeyPatch):
    """Workers that inherit an uncollected loader would close its queues."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)  # seconds to join
    gc.disable()
    try:
        order, others = Order(8, 4, 0), set(active_children())
        run = {"loader": loader(Keyed(Noise(), 0), order, 1)}
        run["itself"] = run
        next(iter(run["loader"]))
        (worker,) = set(active_children()) - others
        del run
        assert worker.is_alive()
        loader(Keyed(Noise(), 0), order, 1)
        worker.join(30)  # where the machine is busy, 0.2 s are too few
        assert not worker.is_alive()
    finally:
        gc.enable()


def test_evaluation_sees_every_sample_once_over_ranks():
    seen = [
        int(index)
        for rank in range(3)
        for batch in evaluation_loader(Noise(), 2, 0, False, rank, 3)
        for index in batch["input"][:, 0]
    ]
    assert sorted(seen) == list(range(8))
