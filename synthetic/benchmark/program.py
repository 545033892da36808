"""Train all runs of a method at once: one batched program over columns x seeds.

A run is one nn.Linear and one loss. R runs of one shape are stacked: weights (R, D, F), sigma (R,),
and so on. `torch.func.vmap` maps the loss modules over the stack, and elementwise optimisers (SGD,
Adam) treat the runs independently. So a step costs about as much as a single run's.

R: runs; n: samples; B: batch; F: inputs; D: label dimensions.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vjp, vmap
from torch.fx.experimental.const_fold import split_const_subgraphs
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim.lr_scheduler import CosineAnnealingLR

from losses import BalancedLoss, fast
from losses import Batch as BatchPrior
from synthetic.benchmark.problems import Problem, Split, make_splits


@dataclass(frozen=True)
class Training:
    """Settings of a family of problems: see configs/synthetic.yaml."""

    epochs: int
    optimizer: str  # a class of torch.optim
    learning_rate: float
    sigma_learning_rate: float
    momentum: float | None
    samples: int
    held_out: int
    batch: int
    validations: int  # evenly over the epochs


class State(NamedTuple):
    """State of R runs: losses and errors (R,), weight (R, D, F), bias (R, D), sigma (R,)."""

    loss: Tensor  # on validation pairs, in nats, comparable while sigma moves
    mse: Tensor  # on the test set
    weight: Tensor
    bias: Tensor
    sigma: Tensor  # NaN where the loss has none

    def better(self, other: "State") -> "State":
        """Return for each run the state of lower validation loss."""
        first, pairs = self.loss <= other.loss, zip(self, other, strict=True)
        return State(*(torch.where(first.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))


class Objective(nn.Module):
    """A loss by its `kind`: "loss" for training, "nats" for validation, or its "gradients" to pred
    and to the loss's parameters by name ("gradients near": faster, for labels near each other)."""

    def __init__(self, loss: nn.Module):
        super().__init__()
        self.loss = loss

    def forward(self, pred: Tensor, target: Tensor, density: Tensor, kind: str = "loss"):
        if kind.startswith("gradients"):
            near = kind.endswith("near")
            to_pred, to_parameters = fast.gradients(self.loss, pred, target, near)
            return to_pred, {f"loss.{name}": value for name, value in to_parameters.items()}
        if not isinstance(self.loss, BalancedLoss):
            return self.loss(pred, target, 1 / density)  # the baseline that knows p_train itself
        return self.loss.rows(pred, target).mean() if kind == "nats" else self.loss(pred, target)


class Runs:
    """R = len(problems) x len(seeds) runs of one method, in that order."""

    def __init__(
        self,
        make_loss: Callable[[Problem], nn.Module],
        problems: Sequence[Problem],
        seeds: Sequence[int],
        training: Training,
        device: str = "cpu",
        warm: bool = False,  # starts from the least-squares line
    ):
        self.training, self.device = training, device
        pairs = [(problem, seed) for problem in problems for seed in seeds]
        splits = [make_splits(p, s, training.samples, training.held_out) for p, s in pairs]
        self.data: dict[str, Split] = {}  # x (R, n, F), y (R, n, D), density (R, n)
        for part in ("train", "val", "test"):
            fields = zip(*(split[part] for split in splits), strict=True)
            self.data[part] = Split(*(torch.stack(field).to(device) for field in fields))
        objectives = [Objective(make_loss(problem)).to(device) for problem, _ in pairs]
        self.objective, self.columns = objectives[0], len(problems)
        self.parameters, self.buffers = stack_module_state(objectives)
        shape = self.data["train"].y.shape[-1], self.data["train"].x.shape[-1]
        starts = [
            _least_squares(split["train"]) if warm else _start(seed, *shape)
            for split, (_, seed) in zip(splits, pairs, strict=True)
        ]
        self.weight, self.bias = (
            torch.stack(values).to(device).requires_grad_() for values in zip(*starts, strict=True)
        )
        groups = [{"params": [self.weight, self.bias], "lr": training.learning_rate}]
        if self.parameters:
            own = {"params": [*self.parameters.values()], "lr": training.sigma_learning_rate}
            groups.append(own)
        options = {"fused": True}
        options |= {} if training.momentum is None else {"momentum": training.momentum}
        self.optimizer = getattr(torch.optim, training.optimizer)(groups, **options)
        self.programs: dict[tuple[int, str], Callable[..., list[Tensor]]] = {}
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def train(self, report: Callable[[int, State], None]) -> State:
        """Train all runs; return for each the state of the epoch with the best validation loss.

        Deviation: the released 1-D script selects an epoch too, but then tests the last one.
        """
        schedule = CosineAnnealingLR(self.optimizer, self.training.epochs)
        every = max(1, self.training.epochs // self.training.validations)
        best = None
        for epoch in range(1, self.training.epochs + 1):
            self.epoch()
            schedule.step()
            if epoch % every == 0 or epoch == self.training.epochs:
                state = self.state()
                best = state if best is None else best.better(state)
                report(epoch, state)
        assert best is not None, "at least one epoch"
        return best

    def epoch(self) -> None:
        """Train on every pair once, in a new order for every seed, the same in all columns."""
        kind, count = self._kind(), self.training.samples
        orders = [torch.randperm(count, generator=generator) for generator in self.generators]
        order = torch.stack(orders).repeat(self.columns, 1).to(self.device)  # (R, n)
        for batch in self._batches(Split(*(_take(field, order) for field in self.data["train"]))):
            key = batch.x.shape[1], kind
            if key not in self.programs:
                self.programs[key] = self._gradient_program(batch, kind)
            gradients = self.programs[key](*batch, *(v.detach() for v in self._variables()))
            for variable, gradient in zip(self._variables(), gradients, strict=True):
                variable.grad = gradient.contiguous()  # fused optimisers take no strides
            self.optimizer.step()

    def _batches(self, data: Split) -> Iterator[Split]:
        return map(Split, *(field.split(self.training.batch, dim=1) for field in data))

    def losses(self, batch: Split, kind: str = "loss", variables=None):
        """Return the loss of each run (R,), or, depending on `kind`, its gradients to pred
        (R, B, D) and to the loss's parameters by name."""
        weight, bias, *parameters = variables or self._variables()
        pred = torch.baddbmm(bias[:, None], batch.x, weight.mT)

        def one(parameters, buffers, *batch):
            return functional_call(self.objective, (parameters, buffers), (*batch, kind))

        named = dict(zip(self.parameters, parameters, strict=True))
        return vmap(one)(named, self.buffers, pred, batch.y, batch.density)

    def _variables(self) -> list[Tensor]:
        return [self.weight, self.bias, *self.parameters.values()]

    def _kind(self) -> str:
        """Choose the kind of the objective's gradients for this epoch's sigma."""
        loss = self.objective.loss
        if not fast.has_gradients(loss):
            return "loss"
        batch = isinstance(loss.prior, BatchPrior)
        near = batch and fast.are_near(self.data["train"].y, self._sigma())
        return "gradients near" if near else "gradients"

    def _sigma(self) -> Tensor:
        """(R,), NaN where the loss has none."""
        scales = {**self.buffers, **self.parameters}
        found = [v for k, v in scales.items() if k.endswith((".sigma", ".scale"))]
        return found[0].detach() if found else torch.full((len(self.weight),), torch.nan)

    def _gradient_program(self, batch: Split, kind: str) -> Callable[..., list[Tensor]]:
        """Return a function (x, y, density, *variables) -> the gradients of the variables.

        The vmapped loss and its backward pass are traced once into a flat list of tensor
        operations, without those that only the loss's value needs. Operations on constants, such
        as a fixed prior's, are computed once.
        """
        ones = torch.ones(len(batch.x), device=self.device)

        def gradients(x: Tensor, y: Tensor, density: Tensor, *variables: Tensor):
            batch = Split(x, y, density)
            if kind == "loss":
                return vjp(lambda *v: self.losses(batch, variables=v), *variables)[1](ones)
            to_pred, others = self.losses(batch, kind, variables)
            return to_pred.mT @ x, to_pred.sum(1), *(others[name] for name in self.parameters)

        program = make_fx(gradients)(*batch, *(v.detach() for v in self._variables()))
        program.graph.eliminate_dead_code()
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return split_const_subgraphs(program)

    @torch.no_grad()
    def state(self) -> State:
        """Evaluate the runs."""
        losses = [self.losses(batch, "nats") for batch in self._batches(self.data["val"])]
        pred = torch.baddbmm(self.bias[:, None], self.data["test"].x, self.weight.mT)
        miss = pred - self.data["test"].y
        return State(
            torch.stack(losses).mean(0),
            miss.square().mean((1, 2)),
            *(tensor.detach().clone() for tensor in (self.weight, self.bias, self._sigma())),
        )


def _take(values: Tensor, rows: Tensor) -> Tensor:
    """(R, n, ...), (R, B) -> (R, B, ...)."""
    first = torch.arange(len(rows), device=rows.device)[:, None] * values.shape[1]
    taken = values.flatten(0, 1).index_select(0, (rows + first).flatten())  # indexing is slower
    return taken.unflatten(0, rows.shape)


def _least_squares(split: Split) -> tuple[Tensor, Tensor]:
    design = torch.cat([split.x, torch.ones(len(split.x), 1)], -1)
    solution = torch.linalg.lstsq(design, split.y).solution.T  # (D, F + 1)
    return solution[:, :-1], solution[:, -1]


def _start(seed: int, dims: int, features: int) -> tuple[Tensor, Tensor]:
    """Return the initial weight and bias of an nn.Linear, from a seed."""
    generator, bound = torch.Generator().manual_seed(seed), features**-0.5
    weight = torch.rand(dims, features, generator=generator) * 2 * bound - bound
    return weight, torch.rand(dims, generator=generator) * 2 * bound - bound
