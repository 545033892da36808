"""One epoch of the benchmark in two ways: all runs in one program, and one run as one would write
it.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from losses import WeightedLoss
from synthetic.benchmark.problems import Problem, make_splits
from synthetic.benchmark.program import Runs, Training


def together(
    make_loss: Callable[[Problem], nn.Module],
    problems: Sequence[Problem],
    seeds: Sequence[int],
    training: Training,
) -> Callable[[], None]:
    """An epoch of len(problems) x len(seeds) runs."""
    return Runs(make_loss, problems, seeds, training).epoch


def alone(
    make_loss: Callable[[Problem], nn.Module], problem: Problem, training: Training
) -> Callable[[], None]:
    """An epoch of one run: a DataLoader, one nn.Linear, one optimiser."""
    data = make_splits(problem, 0, training.samples, training.held_out)["train"]
    loader = DataLoader(TensorDataset(data.x, data.y, 1 / data.density), training.batch, True)
    linear, loss = nn.Linear(data.x.shape[-1], data.y.shape[-1]), make_loss(problem)
    optimizer = getattr(torch.optim, training.optimizer)(
        [*linear.parameters(), *loss.parameters()], lr=training.learning_rate
    )

    def epoch() -> None:
        for x, y, weight in loader:
            optimizer.zero_grad()
            loss(linear(x), y, weight if isinstance(loss, WeightedLoss) else None).backward()
            optimizer.step()

    return epoch
