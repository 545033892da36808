"""Every likelihood x prior pair, by name, and batches for each.

`make(name, dtype, learn)` builds a pair, `batch(name, count, dtype)` a batch (pred, target) for it,
`definition` is its loss by Theorem 1, and `evaluate` returns a loss with its gradients.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from losses import (
    BalancedLoss,
    Batch,
    Bins,
    Categorical,
    Classes,
    Flat,
    Gaussian,
    GaussianMixture,
    Heteroscedastic,
    Histogram,
    Huber,
    Laplace,
)
from losses.likelihoods import Likelihood
from losses.priors import Prior

D64 = torch.float64
EDGES = torch.linspace(-4, 4, 9, dtype=D64)
CLASSES = 5


def likelihood(name: str, dims: int, dtype: torch.dtype, learn: bool) -> Likelihood:
    scale = torch.tensor(0.8, dtype=dtype)
    if name.endswith("*"):  # one sigma per dimension
        scale = torch.linspace(0.6, 1.1, dims, dtype=dtype)
    makers = {
        "Gaussian": lambda: Gaussian(scale, learn),
        "Laplace": lambda: Laplace(scale, learn),
        "Huber": lambda: Huber(scale, 1.3, learn),
        "OwnGaussian": lambda: Heteroscedastic(Gaussian(scale)),
        "OwnLaplace": lambda: Heteroscedastic(Laplace(scale)),
        "Categorical": lambda: Categorical(CLASSES),
        "Histogram": lambda: Histogram(EDGES.to(dtype), soft=0.5),
        "HardHistogram": lambda: Histogram(EDGES.to(dtype)),
    }
    return makers[name.rstrip("*")]()


def mixture(dims: int, dtype: torch.dtype, components: int = 3) -> GaussianMixture:
    g = torch.Generator().manual_seed(dims)
    root = torch.randn(components, dims, dims, generator=g, dtype=D64) / dims**0.5
    covariances = root @ root.mT + 0.2 * torch.eye(dims, dtype=D64)
    means = 1.5 * torch.randn(components, dims, generator=g, dtype=D64)
    weights = torch.rand(components, generator=g, dtype=D64) + 0.2
    return GaussianMixture(weights.to(dtype), means.to(dtype), covariances.to(dtype))


def prior(name: str, dims: int, dtype: torch.dtype) -> Prior:
    centers = (EDGES[1:] + EDGES[:-1]) / 2
    makers = {
        "Flat": Flat,
        "Mixture": lambda: mixture(dims, dtype),
        "Batch": Batch,
        "Bins": lambda: Bins(centers.to(dtype), torch.arange(1, 9, dtype=dtype), power=0.75),
        "Classes": lambda: Classes(torch.arange(1, 1 + CLASSES, dtype=dtype)),
    }
    return makers[name]()


PAIRS = [
    *(f"Gaussian Flat {d}" for d in (1, 3)),
    *(f"Gaussian Mixture {d}" for d in (1, 3)),
    *(f"Gaussian Batch {d}" for d in (1, 3)),
    "Gaussian Bins 1",
    *(f"Gaussian* {prior} 3" for prior in ("Flat", "Mixture", "Batch")),
    *(f"Laplace {prior} 1" for prior in ("Flat", "Mixture", "Batch", "Bins")),
    *(f"Laplace {prior} 3" for prior in ("Flat", "Batch")),
    "Laplace* Batch 3",
    *(f"Huber {prior} 1" for prior in ("Flat", "Batch", "Bins")),
    *(f"Huber {prior} 3" for prior in ("Flat", "Batch")),
    "Huber* Batch 3",
    *(f"OwnGaussian {prior} 1" for prior in ("Flat", "Mixture", "Batch", "Bins")),
    *(f"OwnLaplace {prior} 1" for prior in ("Flat", "Batch", "Bins")),
    *(f"Own{shape} Batch 3" for shape in ("Gaussian", "Laplace")),
    *(f"Categorical {prior} 1" for prior in ("Flat", "Classes")),
    *(f"Histogram {prior} 1" for prior in ("Flat", "Bins", "Batch")),
    *(f"HardHistogram {prior} 1" for prior in ("Flat", "Bins")),
]


def make(pair: str, dtype: torch.dtype = D64, learn: bool = False, **options) -> BalancedLoss:
    name, over, dims = pair.split()
    return BalancedLoss(
        likelihood(name, int(dims), dtype, learn), prior(over, int(dims), dtype), **options
    )


def batch(
    pair: str, rows: int, dtype: torch.dtype = D64, seed: int = 0, learn: bool = False
) -> tuple[Tensor, Tensor]:
    """pred (rows, width), target (rows, D); no two numbers are equal, so no kink is hit."""
    name, _, dims = pair.split()
    g = torch.Generator().manual_seed(seed)
    width = likelihood(name, int(dims), dtype, learn).width(int(dims))
    pred = 1.5 * torch.randn(rows, width, generator=g, dtype=D64)
    if name == "Categorical":
        return pred.to(dtype), torch.randint(CLASSES, (rows, 1), generator=g).to(dtype)
    target = (1.5 * torch.randn(rows, int(dims), generator=g, dtype=D64)).clamp(-3.9, 3.9)
    return pred.to(dtype), target.to(dtype)


def learns(pair: str) -> bool:
    return pair.split()[0].rstrip("*") in ("Gaussian", "Laplace", "Huber")


def definition(loss: BalancedLoss, pred: Tensor, target: Tensor, weight=None) -> Tensor:
    """The mean of `BalancedLoss.rows`, in the likelihood's unit."""
    rows = loss.rows(pred, target, weight)
    mean = rows.mean() if weight is None else weight @ rows / weight.sum()
    return mean if loss.full_nll else loss.likelihood.unit * mean


def evaluate(
    loss: torch.nn.Module, pred: Tensor, target: Tensor, *weight, call: Callable | None = None
) -> list[Tensor]:
    """Return [value, gradient to pred, to the scale if it is learned, to a weight that needs one].

    call: computes the value instead of the loss itself.
    """
    pred = pred.detach().clone().requires_grad_()
    value = (loss if call is None else call)(pred, target, *weight)
    leaves = [pred, *loss.parameters(), *(w for w in weight if w is not None and w.requires_grad)]
    slopes = torch.autograd.grad(value, leaves, allow_unused=True)
    return [value.detach(), *slopes]


def evaluate_exactly(loss: BalancedLoss, *given) -> list[Tensor]:
    """Return the same from the definition."""
    return evaluate(loss, *given, call=lambda *x: definition(loss, *x))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_close(ours, theirs, tolerance: float) -> None:
    """Compare values or lists of them; the tolerance is relative and absolute."""
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
