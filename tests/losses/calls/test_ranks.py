"""Losses in two processes, called without this project's training loop.

docs/losses.md explains how the average over the ranks becomes that of the joined batch.
"""

import copy
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from losses import BMC, BNI, BalancedLoss, Batch, Bins, Flat, Gaussian, Huber, Laplace
from losses.batches import gather
from tests import process
from tests.docs.test_training_loops import run
from tests.losses.pairs import D64, assert_close

PAGE = Path(__file__).parents[3] / "docs" / "losses.md"
SPLITS = {"8 and 2": (slice(0, 8), slice(8, 10)), "5 and 5": (slice(0, 5), slice(5, 10))}
S = torch.tensor(0.9, dtype=D64)
LOSSES = {  # name and label dimensions
    "BMC 1": lambda: BMC(S, learn_sigma=True),
    "BMC 3": lambda: BMC(S, learn_sigma=True),
    "queue 1": lambda: BMC(S, learn_sigma=True, queue=20),
    "Laplace 1": lambda: BalancedLoss(Laplace(S, learn_scale=True), Batch()),
    "BNI 1": lambda: BNI(Bins([-1.0, 0, 1], [1.0, 2, 3]), S, learn_sigma=True),
}
WHERE = ("inside", "outside")  # of the module that DDP wraps
CLOSE = 1e-12  # float64, added up in another order


def samples(name: str) -> Tensor:
    """Return predictions and targets, (2, 10, D)."""
    g = torch.Generator().manual_seed(0)
    return torch.randn(2, 10, int(name[-1]), generator=g, dtype=D64)


def joined():
    """Return the function that the page defines for this."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (block,) = [block for block in blocks if "def joined(" in block]
    names = {"torch": torch}
    exec(compile(block, str(PAGE), "exec"), names)
    return names["joined"]


def results(name: str, rows: slice, factor=lambda mean, count: mean, weight=None) -> Tensor:
    """Return the value, the gradients to all predictions, and that to the scale, in one vector."""
    loss, (pred, target) = LOSSES[name](), samples(name)
    pred.requires_grad_()
    loss(pred[rows], target[rows])  # so that a queue is used
    value = factor(loss(pred[rows], target[rows], weight), len(target[rows]))
    slopes = torch.autograd.grad(value, [pred, *loss.parameters()])
    return torch.cat([x.detach().flatten() for x in (value, *slopes)])


class Both(torch.nn.Module):
    """A model and its loss in one module, as this project's loop has them."""

    def __init__(self, loss: torch.nn.Module):
        super().__init__()
        self.model, self.loss = torch.nn.Linear(1, 1), loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.model(x), y)


def trained_sigma(rank: int, where: str) -> Tensor:
    """Return sigma after 50 steps with a loss inside or outside of the module that DDP wraps."""
    torch.manual_seed(0)
    x = torch.randn(2, 16, 1)[rank]  # each rank has its samples
    y = x * (1 + rank)
    both = Both(copy.deepcopy(BMC(1.0, learn_sigma=True)))
    wrapped = torch.nn.parallel.DistributedDataParallel(both if where == "inside" else both.model)
    optimizer = torch.optim.Adam(both.parameters(), lr=0.05)
    for _ in range(50):
        optimizer.zero_grad()
        value = wrapped(x, y) if where == "inside" else both.loss(wrapped(x), y)
        value.backward()
        optimizer.step()
    return both.loss.sigma.detach()


def run_rank(rank: int, folder: str) -> None:
    made = {}
    for split, rows in SPLITS.items():
        for name in LOSSES:
            for kind, options in {"alone": {}, "page": {"factor": joined()}}.items():
                mean = results(name, rows[rank], **options)
                distributed.all_reduce(mean)  # the average over the ranks, as DDP's
                made[f"{split} {name} {kind}"] = mean / 2
    rows = SPLITS["8 and 2"][rank]
    made["gathered"] = gather(samples("BMC 3")[1][rows])
    pred, target = samples("BMC 1")
    weight = torch.tensor([1.0, 0, 1, 1, 1, 1, 1, 1, 0, 1])[rows, None]
    marked = target[rows].where(weight > 0, torch.nan)
    kept, log_weights, missing = Batch(max_atoms=5).atoms(marked)
    found = (marked == kept[log_weights.isfinite()].mT).any(1)  # the last two atoms are the ends
    made["own labels"] = (missing == ~found)[weight[:, 0] > 0]
    for kind in (Gaussian, Laplace, Huber):
        loss = BalancedLoss(kind("auto"), Flat())
        if rank == 0:
            loss.eval()(pred, target)  # waits for no other rank
        loss.train()(pred[rows], target[rows])
        made[f"auto {kind.__name__}"] = loss.likelihood.value
    made |= {f"sigma {where}": trained_sigma(rank, where) for where in WHERE}
    made["sigma page"] = run("Several processes (DDP)")["loss"].sigma.detach()
    if rank == 0:
        for name, make in LOSSES.items():  # a validation on one rank only
            made[f"{name} validation"] = make().eval()(*samples(name)).detach()
    torch.save(made, Path(folder, f"{rank}.pt"))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("ranks")
    process.ranks(run_rank, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", LOSSES)
def test_ranks_are_one_process_with_the_joined_batch(ranks, name):
    """With the function of the page always; without it every rank has the same weight: in 8 and 2,
    a sample of the second rank counts four times. A validation on one rank waits for no other."""
    whole, made = results(name, slice(None)), ranks[0]
    for kind in (*(f"{split} {name} page" for split in SPLITS), f"5 and 5 {name} alone"):
        assert_close(made[kind], whole, CLOSE)
    counted = results(name, slice(None), weight=torch.tensor([1.0] * 8 + [4.0] * 2, dtype=D64))
    assert_close(made[f"8 and 2 {name} alone"], counted, CLOSE)
    assert (counted - whole).abs().max() > 0.01 * whole.abs().max()
    assert_close(made[f"{name} validation"], LOSSES[name]()(*samples(name)).detach(), CLOSE)


def test_labels_and_automatic_scales_are_of_all_ranks(ranks):
    for made in ranks:
        assert made["own labels"].all()  # known to be among the sampled atoms, or not
        assert torch.equal(made["gathered"], samples("BMC 3")[1])  # in rank order
        for kind in (Gaussian, Laplace, Huber):
            alone = BalancedLoss(kind("auto"), Flat())
            alone(*samples("BMC 1"))
            expected = alone.likelihood.value
            # 1e-6: a scale is float32
            torch.testing.assert_close(made[f"auto {kind.__name__}"], expected, rtol=1e-6, atol=0)


def test_a_learned_sigma_is_equal_on_all_ranks(ranks):
    """Its gradient is averaged wherever the loss is, in the loop of docs/training_loops.md too."""
    for where in (*WHERE, "page"):
        ours, theirs = (made[f"sigma {where}"] for made in ranks)
        assert ours == theirs
        assert abs(ours - 1) > 0.05
    inside, outside = (ranks[0][f"sigma {where}"] for where in WHERE)
    torch.testing.assert_close(inside, outside, rtol=1e-4, atol=0)  # float32: sums in another order
