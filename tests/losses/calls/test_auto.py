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


def make(kind: type, prior, learn: bool = False) -> BalancedLoss:
    option = "learn_sigma" if kind is Gaussian else "learn_scale"
    return BalancedLoss(kind("auto", **{option: learn}), prior)


def scale(loss: BalancedLoss) -> torch.Tensor:
    """As it is in the state dict."""
    return loss.state_dict()[f"likelihood.{loss.likelihood.symbol}"]


@both
@kinds
def test_starts_from_the_first_batch(kind, learn):
    """The offset of an untrained head is no noise: 10, not 42."""
    loss = make(kind, Batch(), learn)
    assert scale(loss).isnan()
    pred, target = samples()
    loss(pred, target)
    expected = spread(kind, pred, target)
    assert 8 < expected < 12
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)
    loss(100 * pred, target)
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("bad", [math.nan, math.inf, "no weight"])
@kinds
def test_excluded_samples(kind, bad):
    """Samples that are not finite or have no weight do not count; other weights do not matter."""
    loss, (pred, target) = make(kind, Flat()), samples(403)
    broken, weight = pred.clone(), torch.linspace(0.1, 1, 403)
    broken[[7, 300]] = 1e4 if bad == "no weight" else bad
    if bad == "no weight":
        weight[[7, 300]] = 0
    loss(broken, target, weight)
    some = torch.ones(403, dtype=torch.bool)
    some[[7, 300]] = False
    assert scale(loss).item() == pytest.approx(spread(kind, pred[some], target[some]), rel=CLOSE)


@kinds
def test_one_per_dimension(kind):
    loss = BalancedLoss(kind(["auto"] * 3), Batch())
    pred, target = samples(401, 3)
    target = target * torch.tensor([1.0, 10.0, 0.1]) + torch.tensor([0.0, 500.0, -3.0])
    loss(pred, target)
    columns = zip(pred.split(1, 1), target.split(1, 1), strict=True)
    expected = [spread(kind, p, t) for p, t in columns]
    assert scale(loss).tolist() == pytest.approx(expected, rel=CLOSE)


def test_one_for_all_dimensions():
    """Each dimension has its offset."""
    loss, (pred, target) = BMC("auto"), samples(401, 3)
    target = target + torch.tensor([0.0, 500.0, -3.0])
    loss(pred, target)
    expected = (target - pred).var(0, correction=0).mean().sqrt().item()
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)


def test_a_perfect_batch_gives_the_floor():
    likelihood, y = Gaussian("auto", floor=0.05), torch.randn(8, 1)
    BalancedLoss(likelihood, Flat())(y, y)
    assert likelihood.value.item() == pytest.approx(0.05)


@pytest.mark.parametrize("compiled", [False, True])
@kinds
def test_evaluation_uses_the_batch_and_changes_no_state(kind, compiled):
    torch.compiler.reset()
    loss, (pred, target) = make(kind, Batch(), True).eval(), samples(41, seed=1)
    call = torch.compile(loss, backend="aot_eager", fullgraph=True) if compiled else loss
    value, _, to_scale = evaluate(loss, pred, target, call=call)
    fixed = BalancedLoss(kind(spread(kind, pred, target)), Batch())
    # 1e-3: Huber's constant, squared; 1e-5: float32
    close = 1e-3 if kind is Huber else 1e-5
    assert_close(value, fixed(pred, target), close)
    assert to_scale == 0  # the scale of the batch is not the parameter
    with pytest.warns(match="A batch of one label"):
        loss(pred[:1], target[:1])
    assert scale(loss).isnan()
    loss.train()(*samples(seed=2))
    assert scale(loss).item() == pytest.approx(spread(kind, *samples(seed=2)), rel=CLOSE)


def test_a_batch_without_a_spread_is_skipped():
    """One sample has no spread; the next batch starts sigma, and after a few it is 1."""
    loss, (pred, target) = BalancedLoss(Gaussian("auto"), Flat()), samples()
    assert loss(pred[:1], target[:1]).isfinite()
    assert scale(loss).isnan()
    loss(pred, target)
    assert scale(loss).item() == pytest.approx(spread(Gaussian, pred, target), rel=CLOSE)
    loss = BalancedLoss(Gaussian("auto"), Flat())
    for _ in range(ATTEMPTS):
        assert loss(pred[:1], target[:1]).isfinite()
    assert scale(loss).item() == 1.0
    loss(pred, target)
    assert scale(loss).item() == 1.0


def test_the_value_is_never_nan():
    loss = BalancedLoss(Gaussian("auto", learn_sigma=True), Flat())
    assert loss.likelihood.value.isfinite()
    for pred in (math.nan, math.inf, 3e38):  # the last one's square is infinite
        loss(torch.full((4, 1), pred), torch.zeros(4, 1))
        assert loss.likelihood.value.isfinite()


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
    assert loss.likelihood.value.item() == 1.0
    loss(*plus_minus(3.0))
    assert scale(loss).item() == 3.0


@kinds
def test_compile(kind):
    torch.compiler.reset()
    loss, plain = make(kind, Batch(), True), make(kind, Batch(), True)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for seed in range(ATTEMPTS + 2):
        given = samples(40, seed=seed)
        # 1e-5: float32 in another order
        assert_close(evaluate(loss, *given, call=compiled), evaluate(plain, *given), 1e-5)
        assert scale(loss).item() == pytest.approx(scale(plain).item(), rel=1e-6)


@both
@kinds
def test_torch_func(kind, learn):
    """It changes no state: each batch has its scale until a plain call has set one."""
    loss = make(kind, Batch(), learn)
    batches = [samples(40, seed=seed) for seed in range(3)]
    preds, targets = (torch.stack(part) for part in zip(*batches, strict=True))
    values, slopes = vmap(loss)(preds, targets), vmap(grad(loss))(preds, targets)
    for k, batch in enumerate(batches):
        # 1e-5: float32 in another order
        assert_close([values[k], slopes[k]], evaluate(make(kind, Batch()), *batch), 1e-5)
    assert scale(loss).isnan()
    loss(*batches[0])
    started = scale(loss).item()
    torch.testing.assert_close(vmap(loss)(preds, targets)[1], loss(*batches[1]))
    assert scale(loss).item() == started


def test_runs_at_once():
    """Stacked losses with a scale each, one of which has not started."""
    losses = [BMC("auto", learn_sigma=True) for _ in range(3)]
    batches = [samples(40, seed=seed) for seed in range(3)]
    for loss, batch in list(zip(losses, batches, strict=True))[:2]:
        loss(*batch)
    preds, targets = (torch.stack(part) for part in zip(*batches, strict=True))
    parameters, buffers = stack_module_state(losses)

    def one(parameters, buffers, pred, target):
        return functional_call(losses[2], (parameters, buffers), (pred, target))

    values = vmap(one)(parameters, buffers, preds, targets)
    expected = torch.stack([loss(*batch) for loss, batch in zip(losses, batches, strict=True)])
    assert_close(values, expected, 1e-5)  # float32 in another order
