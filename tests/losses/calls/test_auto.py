"""sigma="auto": set once, by the first training batch, from its samples of positive weight."""

import io
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import functional_call, grad, stack_module_state, vmap

from losses import BMC, BalancedLoss, Batch, Flat, Gaussian, Huber, Laplace
from losses.likelihoods import ATTEMPTS
from tests.losses.pairs import assert_close, evaluate

SPREADS = {  # about the mean residual
    Gaussian: lambda r: np.std(r),
    Laplace: lambda r: np.abs(r - r.mean()).mean(),
    # the normal distribution's median absolute deviation is 0.6745 sigma
    Huber: lambda r: np.median(np.abs(r - r.mean())) / stats.norm.ppf(0.75),
}
CLOSE = 1e-4  # relative: Huber's constant has four digits
kinds = pytest.mark.parametrize("kind", SPREADS)
both = pytest.mark.parametrize("learn", [False, True])


def samples(count: int = 401, dims: int = 1, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """An untrained head, which predicts about 0, and labels 40 +- 10."""
    g = torch.Generator().manual_seed(seed)
    noise, labels = torch.randn(2, count, dims, generator=g)
    return 0.1 * noise, 40 + 10 * labels


def plus_minus(size: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Residuals of exactly this spread."""
    return torch.zeros(4, 1), size * torch.tensor([[1.0], [1], [-1], [-1]])


def spread(kind: type, pred: torch.Tensor, target: torch.Tensor) -> float:
    return SPREADS[kind]((target - pred).numpy().astype(np.float64))


def make(kind: type, learn: bool = False) -> BalancedLoss:
    option = "learn_sigma" if kind is Gaussian else "learn_scale"
    return BalancedLoss(kind("auto", **{option: learn}), Batch())


def scale(loss: BalancedLoss) -> torch.Tensor:
    """As it is in the state dict."""
    return loss.state_dict()[f"likelihood.{loss.likelihood.symbol}"]


@both
@kinds
@pytest.mark.parametrize("bad", [None, math.nan, math.inf, "no weight"])
def test_starts_from_the_first_batch(kind, learn, bad):
    """The offset of an untrained head is no noise: 10, not 42. Samples that are not finite or have
    no weight do not count; other weights do not matter."""
    loss, (pred, target) = make(kind, learn), samples(403)
    assert scale(loss).isnan()
    expected = spread(kind, *(x if bad is None else x[2:] for x in (pred, target)))
    assert 8 < expected < 12
    given, weight = pred.clone(), torch.linspace(0.1, 1, 403)
    if bad is not None:
        given[:2] = 1e4 if bad == "no weight" else bad
    if bad == "no weight":
        weight[:2] = 0
    for pred in (given, 100 * given):
        loss(pred, target, weight)
        assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)


@kinds
def test_dimensions(kind):
    """One scale per dimension, or one for all, where each dimension has its offset."""
    each, loss, (pred, target) = (
        BalancedLoss(kind(["auto"] * 3), Batch()),
        BMC("auto"),
        samples(401, 3),
    )
    target = target * torch.tensor([1.0, 10.0, 0.1]) + torch.tensor([0.0, 500.0, -3.0])
    each(pred, target)
    loss(pred, target)
    columns = zip(pred.split(1, 1), target.split(1, 1), strict=True)
    assert scale(each).tolist() == pytest.approx([spread(kind, *c) for c in columns], rel=CLOSE)
    expected = (target - pred).var(0, correction=0).mean().sqrt().item()
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("compiled", [False, True])
@kinds
def test_evaluation_uses_the_batch_and_changes_no_state(kind, compiled):
    torch.compiler.reset()
    loss, (pred, target) = make(kind, True).eval(), samples(41, seed=1)
    call = torch.compile(loss, backend="aot_eager", fullgraph=True) if compiled else loss
    value, _, to_scale = evaluate(loss, pred, target, call=call)
    fixed = BalancedLoss(kind(spread(kind, pred, target)), Batch())
    # 1e-3: Huber's constant, squared; 1e-5: float32
    assert_close(value, fixed(pred, target), 1e-3 if kind is Huber else 1e-5)
    assert to_scale == 0  # the scale of the batch is not the parameter
    with pytest.warns(match="A batch of one label"):
        loss(pred[:1], target[:1])
    assert scale(loss).isnan()
    loss.train()(*samples(seed=2))
    assert scale(loss).item() == pytest.approx(spread(kind, *samples(seed=2)), rel=CLOSE)


def test_batches_without_a_spread():
    """One sample has none; the next batch starts sigma, after a few it is 1. A perfect batch gives
    the floor, and the value in use is never NaN."""
    (pred, target), sigmas = samples(), {2: spread(Gaussian, *samples()), ATTEMPTS: 1.0}
    for skipped, expected in sigmas.items():
        loss = BalancedLoss(Gaussian("auto"), Flat())
        for _ in range(skipped):
            assert scale(loss).isnan()
            assert loss(pred[:1], target[:1]).isfinite()
        loss(pred, target)
        assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)
    loss = BalancedLoss(Gaussian("auto", floor=0.05), Flat())
    loss(target, target)
    assert loss.sigma.item() == pytest.approx(0.05)
    loss = BalancedLoss(Gaussian("auto", learn_sigma=True), Flat())
    for bad in (math.nan, math.inf, 3e38):  # the last one's square is infinite
        assert loss.sigma.isfinite()
        loss(torch.full((4, 1), bad), torch.zeros(4, 1))
    assert loss.sigma.isfinite()


@pytest.mark.parametrize("sigma", ["auto", 5.0])
@both
def test_the_state_dict_decides(learn, sigma):
    """A loaded state that has started is kept; one that has not starts with the next batch."""
    started, file = BMC("auto", learn_sigma=learn), io.BytesIO()
    started(*plus_minus(2.0))
    torch.save(started.state_dict(), file)
    file.seek(0)
    loss = BMC(sigma, learn_sigma=learn)
    loss.load_state_dict(torch.load(file, weights_only=True))
    loss(*plus_minus(50.0))
    assert scale(loss).item() == 2.0
    loss.load_state_dict(BMC("auto", learn_sigma=learn).state_dict())
    assert scale(loss).isnan()
    assert loss.sigma.item() == 1.0
    loss(*plus_minus(3.0))
    assert scale(loss).item() == 3.0


@pytest.mark.parametrize("kind", [Gaussian, Huber])  # Laplace's mean is compiled in evaluation
def test_compile(kind):
    torch.compiler.reset()
    loss, plain = make(kind, True), make(kind, True)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for seed in range(ATTEMPTS + 2):
        given = samples(40, seed=seed)
        # 1e-5: float32 in another order
        assert_close(evaluate(loss, *given, call=compiled), evaluate(plain, *given), 1e-5)
        assert scale(loss).item() == pytest.approx(scale(plain).item(), rel=1e-6)


@both
@kinds
def test_torch_func(kind, learn):
    """It changes no state: each batch has its scale until a plain call has set one. Stacked losses
    have a scale each."""
    losses, batches = [make(kind, learn) for _ in range(3)], [samples(40, seed=k) for k in range(3)]
    preds, targets = (torch.stack(part) for part in zip(*batches, strict=True))
    values, slopes = vmap(losses[0])(preds, targets), vmap(grad(losses[0]))(preds, targets)
    for k, batch in enumerate(batches):
        # 1e-5: float32 in another order
        assert_close([values[k], slopes[k]], evaluate(make(kind), *batch), 1e-5)
    assert scale(losses[0]).isnan()
    for loss, batch in list(zip(losses, batches, strict=True))[:2]:
        loss(*batch)
    started = scale(losses[0]).item()
    assert_close(vmap(losses[0])(preds, targets)[1], losses[0](*batches[1]), 1e-5)
    assert scale(losses[0]).item() == started

    def one(parameters, buffers, pred, target):
        return functional_call(losses[2], (parameters, buffers), (pred, target))

    values = vmap(one)(*stack_module_state(losses), preds, targets)  # the last has not started
    expected = [loss(*batch) for loss, batch in zip(losses, batches, strict=True)]
    assert_close(values, torch.stack(expected), 1e-5)
