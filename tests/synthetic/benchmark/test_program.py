"""The batched program against single runs: nn.Linear, torch.optim, one after another."""

import dataclasses

import pytest
import torch
from torch import nn

from losses import WeightedLoss
from synthetic.benchmark.jobs import EXTRAS, METHODS, defined
from synthetic.benchmark.problems import TABLE, make_splits
from synthetic.benchmark.program import Runs, State, Training

SGD = Training(3, "SGD", 1e-3, 1e-3, 0.9, samples=64, held_out=48, batch=32, validations=3)
ADAM = dataclasses.replace(SGD, optimizer="Adam", learning_rate=0.2, momentum=None)
NORMAL, EXPONENTIAL, MVN = TABLE[:2], TABLE[3:5], TABLE[6:8]
ALL = {**METHODS, **EXTRAS}


def one_run(method, problem, seed, training, weight, bias):
    """Train a single run in a plain loop, in the batched program's order of samples."""
    data = make_splits(problem, seed, training.samples, training.held_out)["train"]
    linear = nn.Linear(data.x.shape[-1], problem.dims)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    loss = ALL[method](problem)
    groups = [{"params": linear.parameters(), "lr": training.learning_rate}]
    if own := list(loss.parameters()):
        groups.append({"params": own, "lr": training.sigma_learning_rate})
    options = {} if training.momentum is None else {"momentum": training.momentum}
    optimizer = getattr(torch.optim, training.optimizer)(groups, **options)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, training.epochs)
    order = torch.Generator().manual_seed(seed)
    for _ in range(training.epochs):
        for rows in torch.randperm(training.samples, generator=order).split(training.batch):
            weight = 1 / data.density[rows] if isinstance(loss, WeightedLoss) else None
            optimizer.zero_grad()
            loss(linear(data.x[rows]), data.y[rows], weight).backward()
            optimizer.step()
        schedule.step()
    return linear.weight.detach(), linear.bias.detach(), loss


def cases():
    for problems, training in ((NORMAL, SGD), (MVN, ADAM)):
        yield from ((method, problems, training) for method in ALL if defined(method, problems[0]))
        large = dataclasses.replace(training, samples=256, batch=256)  # large buffers
        yield from ((method, problems, large) for method in ("BMC (true noise)", "BMC"))
    large = dataclasses.replace(SGD, samples=1024, batch=1024)  # and 64 components
    yield from ((method, EXPONENTIAL, large) for method in ("GAI (true noise)", "GAI"))


@pytest.mark.parametrize(("method", "problems", "training"), list(cases()))
def test_a_batched_run_is_the_single_run(method, problems, training):
    seeds = (0, 7)
    runs = Runs(ALL[method], problems, seeds, training)
    starts = runs.weight.detach().clone(), runs.bias.detach().clone()
    states: list[State] = []
    runs.train(lambda epoch, state: states.append(state))
    last = states[-1]
    for i, (problem, seed) in enumerate((p, s) for p in problems for s in seeds):
        weight, bias, loss = one_run(method, problem, seed, training, starts[0][i], starts[1][i])
        # float32, six steps, sums in another order
        torch.testing.assert_close(last.weight[i], weight, rtol=2e-4, atol=2e-5)
        torch.testing.assert_close(last.bias[i], bias, rtol=2e-4, atol=2e-5)
        for own in loss.parameters():
            torch.testing.assert_close(last.sigma[i], own.detach(), rtol=1e-4, atol=0)


def test_the_selected_epoch_has_the_best_validation_loss():
    states = []
    training = dataclasses.replace(SGD, epochs=12, validations=12)
    best = Runs(METHODS["BMC"], NORMAL, (0, 1), training).train(lambda _, s: states.append(s))
    losses = torch.stack([state.loss for state in states])
    torch.testing.assert_close(best.loss, losses.min(0).values, rtol=0, atol=0)
    for run, epoch in enumerate(losses.argmin(0).tolist()):
        assert torch.equal(best.weight[run], states[epoch].weight[run])
        assert best.mse[run] == states[epoch].mse[run]
