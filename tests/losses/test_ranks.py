"""The losses called directly in two processes, without this project's loop: with 8 and 2 rows, the
page on using them says how the average over the ranks is that of the joined batch.
"""

import math
import re
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from losses import BMC, BNI, BalancedLoss, Batch, Bins, Gaussian, Laplace
from tests import process
from tests.losses.pairs import D64

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
SPLITS = {"8 and 2": (8, 2), "5 and 5": (5, 5)}
S = torch.tensor(0.9, dtype=D64)
LOSSES = {
    "BMC": lambda: BMC(S, learn_sigma=True),
    "Laplace": lambda: BalancedLoss(Laplace(S, learn_scale=True), Batch()),
    "BNI": lambda: BNI(Bins([-1.0, 0, 1], [1.0, 2, 3]), S, learn_sigma=True),
}


def samples() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x, noise = torch.randn(10, 3, generator=g, dtype=D64), torch.randn(10, generator=g, dtype=D64)
    return x, (x.sum(-1) + noise)[:, None]


def joined():
    """The function that the page defines for this."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (block,) = [block for block in blocks if "def joined(" in block]
    names = {"torch": torch}
    exec(compile(block, str(PAGE), "exec"), names)
    return names["joined"]


def gradients(name: str, rows: slice, factor=lambda mean, rows: mean, weight=None) -> Tensor:
    """To a model's parameters and sigma, in one vector."""
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(3, 1, dtype=D64), LOSSES[name]()
    x, y = (part[rows] for part in samples())
    factor(loss(model(x), y, weight), len(y)).backward()
    return torch.cat([p.grad.flatten() for p in (*model.parameters(), *loss.parameters())])


def averaged(name: str, rows: slice, **options) -> Tensor:
    """Over the ranks, as DDP does."""
    mean = gradients(name, rows, **options)
    distributed.all_reduce(mean)
    return mean / distributed.get_world_size()


def run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),  # who waits for a rank that never comes gets an error
    )
    made = {}
    for split, (first, second) in SPLITS.items():
        rows = slice(0, first) if rank == 0 else slice(first, first + second)
        for name in LOSSES:
            made[f"{split} {name} alone"] = averaged(name, rows)
            made[f"{split} {name} page"] = averaged(name, rows, factor=joined())
    if rank == 0:
        x, y = samples()
        for name, make in LOSSES.items():  # a validation that only one rank does
            made[f"{name} validation"] = make().eval()(x[:, :1], y).detach()
            auto = BalancedLoss(Gaussian("auto"), Batch()).eval()
            assert math.isfinite(auto(x[:, :1], y).item())
        torch.save(made, Path(folder, "made.pt"))
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Tensor]:
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [process.start(run_rank, rank, str(folder)) for rank in range(2)]
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    return torch.load(folder / "made.pt", weights_only=True)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("split", SPLITS)
def test_as_the_page_says_it_is_the_joined_batch(made, split, name):
    whole = gradients(name, slice(None))
    # 1e-12: float64, added up in another order
    torch.testing.assert_close(made[f"{split} {name} page"], whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_alone_every_rank_counts_alike(made, name):
    """As many rows each: the joined batch. 8 and 2: a row of the second counts four times."""
    whole = gradients(name, slice(None))
    torch.testing.assert_close(made[f"5 and 5 {name} alone"], whole, rtol=1e-12, atol=1e-12)
    counted = gradients(name, slice(None), weight=torch.tensor([1.0] * 8 + [4.0] * 2, dtype=D64))
    torch.testing.assert_close(made[f"8 and 2 {name} alone"], counted, rtol=1e-12, atol=1e-12)
    assert (counted - whole).abs().max() > 0.01 * whole.abs().max()


@pytest.mark.parametrize("name", LOSSES)
def test_a_validation_on_one_rank_waits_for_no_other(made, name):
    x, y = samples()
    torch.testing.assert_close(made[f"{name} validation"], LOSSES[name]()(x[:, :1], y).detach())
