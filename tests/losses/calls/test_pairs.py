"""Every pair in every mode: weights, reductions, precision, torch.compile, torch.func, export."""

import math
import shutil

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap

from losses import BMC, BalancedLoss, Bins, Flat, Gaussian, Huber, Laplace, WeightedLoss, priors
from losses import batches as checks
from losses.balanced import SMALL
from losses.fast import table
from tests.losses.pairs import D64, PAIRS, assert_close, batch, definition, evaluate, learns, make

CLOSE = 1e-9  # the same mathematics in float64, in another order
LOW = [torch.float16, torch.bfloat16]
every_pair = pytest.mark.parametrize("pair", PAIRS)
either = pytest.mark.parametrize("weighted", [False, True])


@either
@every_pair
def test_compile_and_vmap(pair, weighted):
    """Compiled without a graph break or a C compiler, every other pair with weights; several runs,
    each with its scale."""
    losses, given = [make(pair, learn=learns(pair)) for _ in range(3)], []
    for k, loss in enumerate(losses):
        given.append(batch(pair, 6, seed=k))
        for p in loss.parameters():
            p.data.mul_(1 + 0.2 * k)
    weight = torch.linspace(0.2, 1, 6, dtype=D64).requires_grad_() if weighted else None
    expected = [evaluate(loss, *pair, weight) for loss, pair in zip(losses, given, strict=True)]
    if weighted == (list(PAIRS).index(pair) % 2 == 0):
        torch.compiler.reset()
        compiled = torch.compile(losses[0], backend="aot_eager", fullgraph=True)
        assert_close(evaluate(losses[0], *given[0], weight, call=compiled), expected[0], CLOSE)

    def one(parameters, buffers, pred, target):
        return functional_call(losses[0], (parameters, buffers), (pred, target, weight))

    state = *stack_module_state(losses), *(torch.stack(x) for x in zip(*given, strict=True))
    scales, slopes = vmap(grad(one, argnums=(0, 2)))(*state)
    found = zip(vmap(one)(*state), slopes, *scales.values(), strict=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert_close([*ours], theirs[: len(ours)], CLOSE)


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")  # inductor's own
def test_inductor():
    loss, given = make("Gaussian Batch 1", learn=True), batch("Gaussian Batch 1", 6)
    torch.compiler.reset()
    assert_close(evaluate(loss, *given, call=torch.compile(loss)), evaluate(loss, *given), CLOSE)


@either
@pytest.mark.parametrize(
    "pair",
    [
        *("Gaussian Batch 1", "Gaussian Bins 1", "Gaussian Mixture 3"),
        *("Laplace Batch 3", "Laplace Mixture 1", "Histogram Bins 1"),
    ],
)
def test_export_with_a_dynamic_batch(pair, weighted):
    loss, size = make(pair, torch.float32), torch.export.Dim("size", min=2, max=100_000)

    def samples(count: int) -> tuple:
        return *batch(pair, count, torch.float32, seed=count), *[torch.rand(count)] * weighted

    shapes = {name: {0: size} for name in ("pred", "target", *["weight"] * weighted)}
    exported = torch.export.export(loss, samples(6), dynamic_shapes=shapes).module()
    for count in (3, 2500 if "Batch" not in pair else 300):
        given = samples(count)
        assert_close(exported(*given), loss(*given), 1e-5)


@pytest.mark.parametrize("count", [6, 1100])
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_functional_call_with_a_fixed_scale(kind, count, monkeypatch):
    """Also of chunks, which are recomputed after the module has its own scale again."""
    monkeypatch.setattr(table, "NUMBERS", 500)
    loss = BalancedLoss(kind(1.0), Bins([-1.0, 0, 1], [1.0, 2, 3]))
    pred, target = batch("Gaussian Bins 1", count, torch.float32)
    name, scale = f"likelihood.{loss.likelihood.symbol}", torch.tensor(0.5, requires_grad=True)
    value = functional_call(loss, {name: scale}, (pred, target))
    assert_close(value, BalancedLoss(kind(0.5), loss.prior)(pred, target), 1e-6)
    slope = grad(lambda s: functional_call(loss, {name: s}, (pred, target)))(scale.detach())
    assert_close(torch.autograd.grad(value, scale)[0], slope, 1e-5)


def test_vmap_leaves_nothing_batched_in_the_queue():
    loss = BMC(1.0, queue=8)
    pred, target = torch.randn(2, 2, 5, 1)
    assert vmap(loss)(pred, target).shape == (2,)
    assert loss(pred[0], target[0]).isfinite()
    assert len(loss.prior.earlier) == 5


@pytest.mark.parametrize("count", [5, SMALL + 100])
@every_pair
def test_inference_mode(pair, count, request):
    """The value is the same wherever the loss is created; and it trains afterwards."""
    if count > 5 and "Batch" in pair:
        count //= request.getfixturevalue("small_limits")
    (pred, target), outside = batch(pair, count), make(pair, learn=learns(pair))
    with torch.inference_mode():
        made = make(pair, learn=learns(pair))
        values = outside(pred, target), made(pred, target)
    expected = outside(pred, target).detach()
    assert_close([value.clone() for value in values], [expected] * 2, 1e-12)
    made(pred.requires_grad_(), target).backward()
    assert pred.grad is not None


@pytest.mark.parametrize("dtype", LOW)
@every_pair
def test_half_precision_is_computed_in_float32(pair, dtype):
    """pred, target and weight: loss and gradient are those in float32. Autocast changes nothing,
    and no decoded prediction either."""
    loss, weight = make(pair, torch.float32), torch.linspace(0.1, 1, 6).to(dtype)
    low = [*(x.to(dtype) for x in batch(pair, 6, torch.float32)), weight]
    value, slope = evaluate(loss, *low, call=torch.autocast("cpu", dtype=dtype)(loss))
    assert value.dtype == torch.float32
    expected, expected_slope = evaluate(loss, *(x.float() for x in low))
    assert_close([value, slope], [expected, expected_slope.to(dtype)], 0)
    for pred in (low[0], low[0].float()):
        with torch.autocast("cpu", dtype=dtype):
            found = loss.likelihood.decode(pred)
        assert_close(found, loss.likelihood.decode(pred), 0)


@pytest.mark.parametrize("sigmas", [50, 1e4])
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if learns(pair)])
def test_far_from_the_mass(pair, sigmas):
    """Finite and, at 50 sigma, still equal to float64."""
    pred, target = batch(pair, 6, torch.float32)
    pred = pred + 0.8 * sigmas * torch.tensor([1, -1, 1, -1, 1, -1])[:, None]
    loss = make(pair, torch.float32, learn=True)
    single = evaluate(loss, pred, target)
    assert all(x.isfinite().all() for x in single)
    if sigmas == 50:
        # values are differences of energies r^2 / 2 = 1250, which float32 rounds to 1e-4; ten
        # times that. At 1e4 sigma their rounding is as large as the gradient: finite only
        double = evaluate(loss.double(), pred.double(), target.double())
        assert_close([x.double() for x in single], double, 1e-3)


@either
@pytest.mark.parametrize(
    ("pair", "size"),
    [*((pair, 6) for pair in PAIRS), ("Gaussian Bins 1", 1100), ("Huber Batch 3", 400)],
)
def test_reductions(pair, size, weighted, small_limits, monkeypatch):
    """Also where a table or chunks are used; weights have a gradient."""
    monkeypatch.setattr(table, "NUMBERS", 1 << 14)
    given = batch(pair, size)
    weight = torch.linspace(0, 1, size, dtype=D64).requires_grad_() if weighted else None
    mean, total, each = (
        make(pair, learn=learns(pair), reduction=name) for name in ("mean", "sum", "none")
    )
    rows = each(*given, weight)
    assert rows.shape == (size,)
    count = size if weight is None else weight.sum().detach()
    values = [mean(*given, weight) * count, total(*given, weight), rows.sum()]
    assert_close(values, [definition(mean, *given, weight) * count] * 3, CLOSE)
    slopes = [evaluate(loss, *given, weight)[1] for loss in (mean, total)]
    assert_close(slopes[0] * count, slopes[1], CLOSE)
    if weight is not None:
        (slope,) = torch.autograd.grad(values[1], weight)
        assert_close(slope, mean.likelihood.unit * mean.rows(*given, weight), CLOSE)


@pytest.mark.parametrize("pair", [*PAIRS, "weighted"])
def test_bad_batches(pair):
    """Refused; where no number can be read, the loss is not finite."""
    loss = WeightedLoss() if pair == "weighted" else make(pair)
    pred, target = batch("Gaussian Flat 1" if pair == "weighted" else pair, 4)
    with pytest.raises(ValueError, match=r"The order is loss\(pred, target\): are they swapped"):
        loss(pred, target.clone().requires_grad_())
    with pytest.raises(ValueError, match="swapped"):
        grad(lambda y: loss(pred, y))(target)
    with pytest.raises(ValueError, match="Expected at least one sample, got an empty batch"):
        loss(pred[:0], target[:0])
    negative = torch.tensor([3.0, -1, 1, 1], dtype=D64)
    with pytest.raises(ValueError, match="Weights must not be negative, got -1"):
        loss(pred, target, negative)
    assert vmap(lambda w: loss(pred, target, w))(negative[None]).isnan().all()
    for bad in (math.nan, math.inf):
        target[1, 0] = bad
        with pytest.raises(ValueError, match=r"Targets must be finite; samples \[1\] are not"):
            checks.check_numbers(target)
        if "Categorical" not in pair:
            assert not vmap(lambda y: loss(pred, y))(target[None]).isfinite().any()


@pytest.mark.parametrize("count", [1, 3, 1100])
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if "Batch" in pair])
def test_a_batch_of_one_label(pair, count):
    """No gradient in training, the plain loss in evaluation, and one warning; also if the other
    labels have no weight, and in torch.func."""
    loss, (pred, target) = make(pair, learn=learns(pair)), batch(pair, count)
    given = pred, target, (torch.arange(count) == count // 2).double()
    slope = grad(lambda pred: loss(pred, *given[1:]))
    with pytest.warns(match=r"A batch of one label.*BMC\(queue=1024\)"):
        found = evaluate(loss, *given)
    # float64 rounding; and no second warning, which would be an error
    assert all(x.abs().max() < 1e-15 for x in found)
    assert_close(slope(pred), found[1], CLOSE)
    expected = evaluate(BalancedLoss(loss.likelihood, Flat()), *given)
    assert_close(evaluate(loss.eval(), *given), expected, CLOSE)
    assert_close(slope(pred), expected[1], CLOSE)


@every_pair
def test_a_sample_of_weight_zero_needs_no_label(pair):
    loss, (pred, target) = make(pair), batch(pair, 6)
    weight = torch.tensor([1.0, 0, 2, 1, 0, 3], dtype=D64)
    missing, seen = target.clone(), weight > 0
    missing[1], missing[4] = math.nan, math.inf
    alone = evaluate(loss, pred[seen], target[seen], weight[seen])
    for given in (missing, target):
        value, slope = evaluate(loss, pred, given, weight)
        assert_close([value, slope[seen]], alone, CLOSE)
        assert (slope[~seen] == 0).all()


@pytest.mark.parametrize("readable", [True, False])
@every_pair
def test_the_sum_of_no_samples_is_zero(pair, readable, monkeypatch):
    if not readable:
        for module in (checks, priors):
            monkeypatch.setattr(module, "is_readable", lambda x: False)
    loss, (pred, target) = make(pair, learn=learns(pair), reduction="sum"), batch(pair, 4)
    found = evaluate(loss, pred, torch.full_like(target, math.nan), torch.zeros(4, dtype=D64))
    assert all((x == 0).all() for x in found)
