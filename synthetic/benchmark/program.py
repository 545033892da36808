"""All runs of a method at once: one batched program over columns x seeds.

A run is one nn.Linear and one loss. R runs of one shape are stacked: weights (R, D, F), sigma
(R,), and so on. `torch.func.vmap` carries the very loss modules over the stack, and elementwise
optimisers (SGD, Adam) treat the runs as if each had its own. So a step costs about what a single
run's costs.

R: runs; n: samples; B: batch; F: inputs; D: label dimensions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vjp, vmap
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.optim.lr_scheduler import CosineAnnealingLR

from losses import BalancedLoss, fast
from losses import Batch as BatchPrior
from synthetic.benchmark.problems import Problem, Split, make_splits

Batch = tuple[Tensor, Tensor, Tensor]  # x (R, B, F), y (R, B, D), density (R, B)


@dataclass(frozen=True)
class Training:
    """How a family of problems is trained; the numbers are in configs/synthetic.yaml."""

    epochs: int
    optimizer: str  # a class of torch.optim
    learning_rate: float
    sigma_learning_rate: float
    momentum: float | None
    samples: int
    held_out: int
    batch: int
    validations: int  # how often, evenly over the epochs


@dataclass(frozen=True)
class State:
    """R runs at one moment: losses and errors (R,), weight (R, D, F), bias (R, D), sigma (R,)."""

    loss: Tensor  # on validation pairs, in nats: comparable while sigma moves
    mse: Tensor  # on the test set
    weight: Tensor
    bias: Tensor
    sigma: Tensor  # NaN where the loss has none

    def better(self, other: "State") -> "State":
        """Run by run, the state of lower validation loss."""
        first = self.loss <= other.loss
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        return State(*(torch.where(first.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))


class Objective(nn.Module):
    """A loss as training sees it, or in nats, as validation compares it while sigma moves, or its
    gradients to pred and to the loss's parameters by name, where they have formulas of their own
    (for labels that are all near each other, quicker ones).
    """

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
        warm: bool = False,  # start from the least-squares line
    ):
        self.training, self.device = training, device
        pairs = [(problem, seed) for problem in problems for seed in seeds]
        splits = [make_splits(p, s, training.samples, training.held_out) for p, s in pairs]
        self.data = {
            (part, field): torch.stack([getattr(s[part], field) for s in splits]).to(device)
            for part in ("train", "val", "test")
            for field in ("x", "y", "density")
        }
        objectives = [Objective(make_loss(problem)).to(device) for problem, _ in pairs]
        self.objective = objectives[0]
        self.parameters, self.buffers = stack_module_state(objectives)
        shape = self.data["train", "y"].shape[-1], self.data["train", "x"].shape[-1]
        starts = [
            _least_squares(split["train"]) if warm else _start(seed, *shape)
            for split, (_, seed) in zip(splits, pairs, strict=True)
        ]
        self.weight = torch.stack([weight for weight, _ in starts]).to(device).requires_grad_()
        self.bias = torch.stack([bias for _, bias in starts]).to(device).requires_grad_()
        self.optimizer = self._optimizer()
        self.programs: dict[tuple[int, str], Callable[[Batch], list[Tensor]]] = {}
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.columns = len(problems)

    def train(self, report: Callable[[int, State], None] = lambda epoch, state: None) -> State:
        """Every run trained to the end; the state of the epoch that validated best, run by run.

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
        """Every training pair once, in a fresh order for every run."""
        kind = self._kind()
        for batch in self._batches("train", self._shuffled()):
            key = batch[0].shape[1], kind
            if key not in self.programs:
                self.programs[key] = self._gradient_program(batch, kind)
            gradients = self.programs[key](batch)
            for variable, gradient in zip(self._variables(), gradients, strict=True):
                variable.grad = gradient.contiguous()  # fused optimisers take no strides
            self.optimizer.step()

    def _batches(self, part: str, order: Tensor) -> Iterator[Batch]:
        """x (R, B, F), y (R, B, D), density (R, B) of each batch, in an order (R, n)."""
        fields = (_take(self.data[part, field], order) for field in ("x", "y", "density"))
        split = (field.split(self.training.batch, dim=1) for field in fields)
        return zip(*split, strict=True)  # pyright: ignore[reportReturnType]

    def losses(self, batch: Batch, kind: str = "loss", variables=None):
        """The loss of each run on its part of the batch: (R,); or, by their `kind`, its gradients
        to pred (R, B, D) and to the loss's parameters by name.
        """
        weight, bias, *parameters = variables or self._variables()
        x, y, density = batch
        pred = torch.baddbmm(bias[:, None], x, weight.mT)

        def one(parameters, buffers, *batch):
            return functional_call(self.objective, (parameters, buffers), (*batch, kind))

        named = dict(zip(self.parameters, parameters, strict=True))
        return vmap(one)(named, self.buffers, pred, y, density)

    def _variables(self) -> list[Tensor]:
        return [self.weight, self.bias, *self.parameters.values()]

    def _kind(self) -> str:
        """How the objective's gradients are computed, for as long as sigma is about what it is."""
        if not fast.has_gradients(self.objective.loss):
            return "loss"
        if not isinstance(self.objective.loss.prior, BatchPrior):
            return "gradients"
        near = fast.are_near(self.data["train", "y"], self._sigma())
        return "gradients near" if near else "gradients"

    def _sigma(self) -> Tensor:
        """(R,), NaN where the loss has none."""
        scales = {**self.buffers, **self.parameters}
        found = [v for k, v in scales.items() if k.endswith((".sigma", ".scale"))]
        return found[0].detach() if found else torch.full((len(self.weight),), torch.nan)

    def _gradient_program(self, batch: Batch, kind: str) -> Callable[[Batch], list[Tensor]]:
        """A batch -> the gradients of every variable, as a flat list of tensor operations.

        The vmapped loss and its backward pass are traced once. What is run is what they did,
        without the bookkeeping, and without what only the loss's value needs.
        """

        ones = torch.ones(len(batch[0]), device=self.device)

        def gradients(batch: Batch, *variables: Tensor) -> tuple[Tensor, ...]:
            if kind != "loss":
                to_pred, others = self.losses(batch, kind, variables)
                return to_pred.mT @ batch[0], to_pred.sum(1), *(others[k] for k in self.parameters)
            pull = vjp(lambda *v: self.losses(batch, variables=v), *variables)[1]
            return pull(ones)

        program = make_fx(gradients)(batch, *(v.detach() for v in self._variables()))
        program.graph.eliminate_dead_code()
        _fold_constants(program)
        program.recompile()
        return lambda batch: program(batch, *(v.detach() for v in self._variables()))

    @torch.no_grad()
    def state(self) -> State:
        """How the runs stand."""
        runs, count = len(self.weight), self.training.held_out
        order = torch.arange(count, device=self.device).expand(runs, -1)
        parts = [self.losses(batch, "nats") for batch in self._batches("val", order)]
        pred = torch.baddbmm(self.bias[:, None], self.data["test", "x"], self.weight.mT)
        miss = pred - self.data["test", "y"]
        return State(
            torch.stack(parts).mean(0),
            miss.square().mean((1, 2)),
            *(tensor.detach().clone() for tensor in (self.weight, self.bias, self._sigma())),
        )

    def _optimizer(self) -> torch.optim.Optimizer:
        t = self.training
        groups = [{"params": [self.weight, self.bias], "lr": t.learning_rate}]
        if self.parameters:
            groups.append({"params": [*self.parameters.values()], "lr": t.sigma_learning_rate})
        options = {"fused": True} | ({} if t.momentum is None else {"momentum": t.momentum})
        return getattr(torch.optim, t.optimizer)(groups, **options)

    def _shuffled(self) -> Tensor:
        """(R, n): a fresh order of the training pairs for every run, the same in all columns."""
        count = self.training.samples
        orders = [torch.randperm(count, generator=generator) for generator in self.generators]
        return torch.stack(orders).repeat(self.columns, 1).to(self.device)


def _fold_constants(program: GraphModule) -> None:
    """Compute once what does not depend on the batch or the variables, such as a fixed prior's."""
    known: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "get_attr":
            known[node] = getattr(program, node.target)
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable and node.all_input_nodes[0] in known:
            raise RuntimeError(f"{node.target} changes a constant: its loss must not work in place")
        if not all(n in known for n in node.all_input_nodes):
            continue
        args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
        value = known[node] = node.target(*args, **kwargs)
        if not isinstance(value, Tensor):
            continue  # several, which are taken one by one
        name = f"folded_{len(known)}"
        program.register_buffer(name, value)
        with program.graph.inserting_before(node):
            constant = program.graph.get_attr(name)
        node.replace_all_uses_with(constant)
        known[node] = known[constant] = value
    program.graph.eliminate_dead_code()


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
    """The weight and bias that torch gives a fresh nn.Linear, from a seed."""
    generator = torch.Generator().manual_seed(seed)
    bound = features**-0.5
    sizes = (dims, features), (dims,)
    weight, bias = (torch.rand(size, generator=generator) * 2 * bound - bound for size in sizes)
    return weight, bias
