"""sigma="auto": started by the first training batch, from the rows that count, for good."""

import io
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import functional_call, grad, stack_module_state, vmap

from losses import BMC, BalancedLoss, Batch, Flat, Gaussian, Huber, Laplace
from losses.likelihoods import ATTEMPTS

SPREADS = {  # about the mean residual
    Gaussian: lambda r: np.std(r),
    Laplace: lambda r: np.abs(r - r.mean()).mean(),
    # the normal distribution's median absolute deviation is 0.6745 sigma
    Huber: lambda r: np.median(np.abs(r - r.mean())) / stats.norm.ppf(0.75),
}
LEARN = {Gaussian: "learn_sigma", Laplace: "learn_scale", Huber: "learn_scale"}
CLOSE = 1e-4  # relative: Huber's constant has four digits


def samples(rows: int = 401, dims: int = 1, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """An untrained head, which predicts about 0, and labels 40 +- 10."""
    g = torch.Generator().manual_seed(seed)
    noise, labels = torch.randn(2, rows, dims, generator=g)
    return 0.1 * noise, 40 + 10 * labels


def spread(kind: type, pred: torch.Tensor, target: torch.Tensor) -> float:
    return SPREADS[kind]((target - pred).numpy().astype(np.float64))


def scale(loss: BalancedLoss) -> torch.Tensor:
    """As it is in the state dict."""
    return loss.state_dict()[f"likelihood.{loss.likelihood.symbol}"]


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("kind", SPREADS)
def test_starts_from_the_first_batch(kind, learn):
    """The offset of an untrained head is no noise: 10, not 42."""
    loss = BalancedLoss(kind("auto", **{LEARN[kind]: learn}), Batch())
    assert scale(loss).isnan()
    pred, target = samples()
    loss(pred, target)
    expected = spread(kind, pred, target)
    assert 8 < expected < 12
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)
    loss(100 * pred, target)
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", SPREADS)
def test_rows_that_are_not_finite_do_not_count(kind, bad):
    loss = BalancedLoss(kind("auto"), Flat())
    pred, target = samples(403)
    broken = pred.clone()
    broken[[7, 300]] = bad
    loss(broken, target)
    rows = torch.ones(403, dtype=torch.bool)
    rows[[7, 300]] = False
    expected = spread(kind, pred[rows], target[rows])
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("kind", SPREADS)
def test_rows_without_a_weight_do_not_count(kind):
    loss = BalancedLoss(kind("auto"), Flat())
    pred, target = samples(402)
    pred = torch.cat([pred, torch.full((1, 1), 1e4)])
    target = torch.cat([target, torch.zeros(1, 1)])
    weight = torch.linspace(0, 1, 403).flip(0)
    loss(pred, target, weight)
    # 1e-2: Huber's median of an even number lies between two residuals
    expected = spread(kind, pred[:-1], target[:-1])
    assert scale(loss).item() == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("kind", SPREADS)
def test_one_per_dimension(kind):
    loss = BalancedLoss(kind(["auto"] * 3), Batch())
    pred, target = samples(401, 3)
    target = target * torch.tensor([1.0, 10.0, 0.1]) + torch.tensor([0.0, 500.0, -3.0])
    loss(pred, target)
    columns = zip(pred.split(1, 1), target.split(1, 1), strict=True)
    expected = [spread(kind, p, t) for p, t in columns]
    assert scale(loss).tolist() == pytest.approx(expected, rel=CLOSE)


def test_one_for_all_dimensions():
    """Each with its own offset."""
    loss = BMC("auto")
    pred, target = samples(401, 3)
    target = target + torch.tensor([0.0, 500.0, -3.0])
    loss(pred, target)
    expected = (target - pred).var(0, correction=0).mean().sqrt().item()
    assert scale(loss).item() == pytest.approx(expected, rel=CLOSE)


def test_words_beside_numbers_are_refused():
    with pytest.raises(ValueError, match=r'sigma must be a positive number or "auto", got \[1.0'):
        Gaussian([1.0, "auto"])


def test_a_perfect_batch_is_the_floor():
    likelihood = Gaussian("auto", floor=0.05)
    y = torch.randn(8, 1)
    BalancedLoss(likelihood, Flat())(y, y)
    assert likelihood.value.item() == pytest.approx(0.05)


@pytest.mark.parametrize("kind", SPREADS)
def test_an_eval_call_starts_nothing(kind):
    """Its own loss is finite, in the scale of its own batch."""
    loss = BalancedLoss(kind("auto"), Flat()).eval()
    pred, target = samples(seed=1)
    fixed = BalancedLoss(kind(spread(kind, pred, target)), Flat())
    # 1e-3: Huber's constant, squared
    assert loss(pred, target).item() == pytest.approx(fixed(pred, target).item(), rel=1e-3)
    assert scale(loss).isnan()
    loss.train()
    pred, target = samples(seed=2)
    loss(pred, target)
    assert scale(loss).item() == pytest.approx(spread(kind, pred, target), rel=CLOSE)


def test_a_batch_that_says_nothing_is_passed_over():
    """One row has no spread; the next batch starts sigma, and after a few it is 1."""
    loss = BalancedLoss(Gaussian("auto"), Flat())
    pred, target = samples()
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


def test_it_is_never_nan():
    loss = BalancedLoss(Gaussian("auto", learn_sigma=True), Flat())
    assert loss.likelihood.value.isfinite()
    for pred in (math.nan, math.inf, 3e38):  # the last one's square is infinite
        loss(torch.full((4, 1), pred), torch.zeros(4, 1))
        assert loss.likelihood.value.isfinite()


@pytest.mark.parametrize("learn", [False, True])
def test_a_state_that_has_started_is_kept(learn):
    saved, file = BMC("auto", learn_sigma=learn), io.BytesIO()
    saved(torch.zeros(4, 1), torch.tensor([[2.0], [2], [-2], [-2]]))
    torch.save(saved.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    for loaded in (BMC("auto", learn_sigma=learn), BMC(5.0, learn_sigma=learn)):
        loaded.load_state_dict(state)
        loaded(torch.zeros(4, 1), torch.tensor([[50.0], [1], [1], [1]]))
        assert scale(loaded).item() == 2.0


@pytest.mark.parametrize("learn", [False, True])
def test_a_state_that_has_not_started_starts_anew(learn):
    loss = BMC("auto", learn_sigma=learn)
    loss(torch.zeros(4, 1), torch.tensor([[2.0], [2], [-2], [-2]]))
    loss.load_state_dict(BMC("auto", learn_sigma=learn).state_dict())
    assert scale(loss).isnan()
    loss(torch.zeros(4, 1), torch.tensor([[3.0], [3], [-3], [-3]]))
    assert scale(loss).item() == 3.0


def test_a_state_decides_whatever_was_given():
    """A number that takes a state which has not started is never NaN in use, and starts."""
    loss = BMC(2.0)
    loss.load_state_dict(BMC("auto").state_dict())
    assert loss.likelihood.value.item() == 1.0
    loss(torch.zeros(4, 1), torch.tensor([[3.0], [3], [-3], [-3]]))
    assert scale(loss).item() == 3.0


@pytest.mark.parametrize("mode", ["plain", "compiled"])
def test_eval_uses_the_batch_and_keeps_nothing(mode):
    """Nor does a call that fails on its way."""
    torch.compiler.reset()
    loss = BMC("auto", learn_sigma=True).eval()
    called = loss if mode == "plain" else torch.compile(loss, backend="aot_eager", fullgraph=True)
    pred, target = samples(40)
    pred.requires_grad_()
    value = called(pred, target)
    expected = BMC(spread(Gaussian, pred.detach(), target))(pred, target)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)  # float32
    (slope,) = torch.autograd.grad(value, loss.likelihood.sigma)
    assert slope == 0  # what stands for sigma is not sigma
    with pytest.raises(ValueError, match="at least two labels"):
        loss(pred[:1], target[:1])
    assert scale(loss).isnan()
    assert isinstance(loss.likelihood.sigma, torch.nn.Parameter)


@pytest.mark.parametrize("kind", SPREADS)
def test_compile(kind):
    torch.compiler.reset()
    loss = BalancedLoss(kind("auto", **{LEARN[kind]: True}), Batch())
    plain = BalancedLoss(kind("auto", **{LEARN[kind]: True}), Batch())
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for seed in range(ATTEMPTS + 2):
        pred, target = samples(40, seed=seed)
        pred.requires_grad_()
        ours, theirs = compiled(pred, target), plain(pred, target)
        # 1e-5: float32 in another order
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        gradients = [
            torch.autograd.grad(value, [pred, *of.parameters()])
            for value, of in ((ours, loss), (theirs, plain))
        ]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        assert scale(loss).item() == pytest.approx(scale(plain).item(), rel=1e-6)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("kind", SPREADS)
def test_torch_func(kind, learn):
    """Inside it nothing is kept: each batch has its own scale until one has started it."""
    loss = BalancedLoss(kind("auto", **{LEARN[kind]: learn}), Batch())
    batches = [samples(40, seed=seed) for seed in range(3)]
    preds, targets = (torch.stack(part) for part in zip(*batches, strict=True))

    def fresh(pred, target):
        other = BalancedLoss(kind("auto"), Batch())
        pred = pred.clone().requires_grad_()
        value = other(pred, target)
        return value.detach(), *torch.autograd.grad(value, pred)

    values, slopes = vmap(loss)(preds, targets), vmap(grad(loss))(preds, targets)
    for k, (pred, target) in enumerate(batches):
        value, slope = fresh(pred, target)
        # 1e-5: float32 in another order
        torch.testing.assert_close(values[k], value, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(slopes[k], slope, rtol=1e-5, atol=1e-5)
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
    # 1e-5: float32 in another order
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-5)
