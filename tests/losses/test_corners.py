"""Corners of the losses: labels far from zero or of low rank, samples of weight zero, uneven bins,
pairs that cannot be combined, and predictions outside the labels."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad
from torch.utils.checkpoint import checkpoint

from losses import (
    BMC,
    GAI,
    BalancedLoss,
    Batch,
    Bins,
    Flat,
    Gaussian,
    GaussianMixture,
    Heteroscedastic,
    Histogram,
    Huber,
    Laplace,
    Product,
    Subspace,
)
from losses.fast import gradients
from losses.reweight import histogram
from tests.losses.pairs import D64, assert_close, batch, evaluate, evaluate_exactly, make


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def off_by(loss, pred: Tensor, target: Tensor) -> float:
    """Largest difference of float32 gradients from float64, relative to the largest gradient."""
    single = evaluate(loss, pred, target)
    assert all(x.dtype == torch.float32 for x in single)
    exact = evaluate_exactly(loss.double(), pred.double(), target.double())
    pairs = zip(single[1:], exact[1:], strict=True)
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


# Batch


def line(count: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """x = y + noise: the balanced p(y | x) is N(x, noise^2)."""
    y, e = torch.randn(2, count, 1, generator=generator(seed), dtype=D64)
    return y + noise * e, y


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("count", [40, 1100])
@pytest.mark.parametrize("queue", [0, 9])
def test_few_atoms_keep_the_own_label(count, weighted, queue, small_limits, monkeypatch):
    """All labels but one are atoms: only the sample whose label was left out has them all."""
    x, y = line(count, 0.5, 0)
    weight = (torch.arange(count) % 4 > 0).to(D64) if weighted else None
    some = torch.arange(count) if weight is None else weight.nonzero()[:, 0]
    sigma = torch.tensor(0.5, dtype=D64)
    loss = BMC(sigma, queue=queue, max_atoms=len(some) + queue - 1)
    loss.prior.earlier = torch.linspace(-1, 1, queue, dtype=D64)[:, None]
    ours = loss(x, y, weight)
    labels = torch.cat([y[some], loss.prior.earlier[:0], torch.linspace(-1, 1, queue)[:, None]])
    energy = -((x[some] - labels.mT) ** 2) / 2 / sigma**2
    every = energy.exp().sum(-1, keepdim=True) - energy.exp()  # (N, K): without the k-th
    index = torch.arange(len(some))
    every[index, index] += energy.exp()[index, index]
    rows = 2 * sigma**2 * every.log() + ((x[some] - y[some]) ** 2)
    assert (rows.mean(0) - ours).abs().min() < 1e-9


@pytest.mark.parametrize("count", [3, 1100])
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_a_single_label_with_a_weight_is_a_batch_of_one(kind, count):
    weight = (torch.arange(count) == 1).float()
    given = torch.zeros(count, 1), torch.linspace(0, 2, count)[:, None], weight
    with pytest.warns(match="A batch of one label"):
        assert BalancedLoss(kind(1.0), Batch())(*given) == 0
    with pytest.warns(match="A batch of one label"):
        value = BalancedLoss(kind(1.0), Batch()).eval()(*given)
    assert_close(value, BalancedLoss(kind(1.0), Flat())(*given), 1e-6)


def test_a_compiled_batch_prefers_labels_with_a_weight():
    """Where no number can be read, they are sampled last and leave the queue first."""
    weight = torch.tensor([0.0] * 60 + [1.0] * 4)
    pred, target = torch.randn(2, 64, 1, generator=generator())
    torch.compiler.reset()
    loss = BMC(1.0, max_atoms=8)
    compiled = torch.compile(loss, backend="aot_eager")
    for _ in range(10):
        assert compiled(pred, target, weight).isfinite()
    prior = Batch(queue=5)
    marked = target.where(weight[:, None] > 0, math.nan)
    torch.vmap(lambda y: prior.atoms(y)[0])(marked[None])


@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
@pytest.mark.parametrize("dims", [1, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_weights_of_zero_cost_no_digits(kind, dims, compiled):
    """Labels at 1e6, of which most have no weight."""
    target = (1e6 + 3 * torch.randn(40, dims, generator=generator())).float()
    pred = target + torch.randn(40, dims, generator=generator(1))
    weight = (torch.arange(40) % 3 == 0).float()
    loss = BalancedLoss(
        kind(1.0, learn_scale=True) if kind is not Gaussian else kind(1, True), Batch()
    )
    torch.compiler.reset()
    call = torch.compile(loss, backend="aot_eager") if compiled else loss
    single = evaluate(loss.float(), pred, target, weight, call=call)
    some = weight > 0
    exact = evaluate_exactly(loss.double(), pred[some].double(), target[some].double())
    assert_close([single[1][some].double(), single[2].double()], exact[1:], 1e-4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_loss_fills_the_queue_once(reentrant):
    plain, kept = BMC(0.8, True, queue=12), BMC(0.8, True, queue=12)
    for step in range(3):
        pred, target = torch.randn(2, 5, 1, generator=generator(step))
        leaf = pred.clone().requires_grad_()
        checkpoint(kept, leaf, target, use_reentrant=reentrant).backward()
        expected = evaluate(plain, pred, target)
        assert_close([leaf.grad], expected[1:2], 1e-6)
        assert torch.equal(kept.prior.earlier, plain.prior.earlier)


def test_a_checkpointed_loss_is_recomputed_from_its_own_queue_or_not_at_all():
    loss = BMC(0.8, queue=4)
    loss(*torch.randn(2, 4, 1))
    leaf = torch.randn(4, 1, requires_grad=True)
    first = checkpoint(loss, leaf, torch.randn(4, 1), use_reentrant=False)
    loss(*torch.randn(2, 4, 1))
    with pytest.raises(RuntimeError, match="queue"):
        first.backward()


def test_an_automatic_scale_can_be_checkpointed():
    pred, target = torch.randn(2, 6, 1, generator=generator())
    loss, other = BMC("auto", True), BMC("auto", True)
    leaf = pred.clone().requires_grad_()
    checkpoint(loss, leaf, target, use_reentrant=False).backward()
    assert_close([leaf.grad, loss.likelihood.sigma.grad], evaluate(other, pred, target)[1:], 1e-6)


# digits


def test_full_nll_in_many_dimensions():
    g = generator()
    labels = torch.randn(400, 6, generator=g, dtype=D64) @ torch.randn(
        6, 64, generator=g, dtype=D64
    )
    loss = GAI(GaussianMixture.fit(labels, 2), 0.5, full_nll=True)
    target = labels[:50].float()
    ours, exact = loss(target, target), loss.double()(target.double(), target.double())
    assert ours.item() == pytest.approx(exact.item(), abs=1e-3)  # 64 terms of float32 rounding


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("over", ["batch 1", "batch 3", "bins 1", "mixture 1"])
def test_offsets_of_gradients_by_formula(over, near):
    """The many runs of the synthetic benchmark."""
    kind, dims = over.split()
    middle = 1e6 + 0.3 + torch.arange(3, dtype=D64)
    prior = {
        "batch": Batch,
        "bins": lambda: Bins(middle, torch.ones(3)),
        "mixture": lambda: GaussianMixture(torch.ones(3), middle[:, None], torch.ones(3, 1, 1)),
    }[kind]()
    target = 1e6 + 3 * torch.randn(40, int(dims), generator=generator())
    pred = target + torch.randn(40, int(dims), generator=generator(1))
    loss = BalancedLoss(Gaussian(1.5, True), prior)
    slope, scales = gradients(loss, pred, target, near)
    exact = evaluate_exactly(loss.double(), pred.double(), target.double())
    assert_close(slope, exact[1].float(), 1e-5)
    assert_close(scales["likelihood.sigma"], exact[2].float(), 1e-4)


@pytest.mark.parametrize("ratio", [100.0, 3000, 1e6])
def test_a_mixture_much_wider_than_the_scale(ratio):
    """The gradient to the scale of a Laplace likelihood, against the asymptotic expansion
    integral = p + b^2 p'' for a density p that is smooth at the scale b."""
    prior = GaussianMixture([1.0], [[0.0]], [[[ratio**2]]])
    laplace = Laplace(1.0, True)
    pred = ratio * torch.tensor([[-1.5], [2.0], [2.5]])
    evidence = prior.log_evidence(laplace, pred, pred)
    (slope,) = torch.autograd.grad(evidence.sum(), laplace.scale)
    expected = (2 * ((pred / ratio) ** 2 - 1) / ratio**2).sum()
    # the next term of the expansion is of relative order 1 / ratio^2
    assert slope.item() == pytest.approx(expected.item(), rel=20 / ratio**2 + 1e-3)


# centres, means and counts


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, list])
def test_centers_and_means_keep_their_digits(convert):
    labels = 1e9 + np.arange(100.0)
    centers = convert(labels)
    assert len(Bins(centers, torch.ones(100)).centers.unique()) == 100
    assert len(Bins(convert(labels.astype(int)), torch.ones(100)).centers.unique()) == 100
    assert len(Bins.fit(labels, np.arange(101) + 1e9 - 0.5).centers.unique()) == 100
    means = labels[:, None].tolist() if convert is list else convert(labels[:, None])
    prior = GaussianMixture(torch.ones(100), means, torch.ones(100, 1, 1))
    assert len(prior.means.unique()) == 100
    assert Histogram(convert(labels)).edges.diff().min() == 1


def test_the_basis_of_a_subspace_keeps_its_digits():
    basis = torch.linalg.qr(torch.randn(4, 2, generator=generator(), dtype=D64)).Q
    target = 1e6 + 3 * torch.randn(32, 4, generator=generator())
    pred = target + torch.randn(32, 4, generator=generator(1))
    assert off_by(BalancedLoss(Gaussian(1.0), Subspace(Batch(), basis)), pred, target) < 1e-4
    assert torch.equal(Subspace(Batch(), basis).basis, basis)


def test_fractional_sample_weights():
    prior = Bins.fit([0.5, 0.5, 1.5], [0, 1, 2], sample_weight=[0.9, 1.9, 7.2])
    assert prior.weights.tolist() == pytest.approx([0.28, 0.72])
    labels = np.linspace(0, 10, 1001)
    share = np.random.default_rng(0).random(1001)
    prior = Bins.fit(labels, np.linspace(0, 10, 8), sample_weight=share)  # no false "outside"
    assert prior.weights.sum().item() == pytest.approx(1)
    assert histogram([0.5, 1.5], [0, 1, 2], [2.0, 3.0]).dtype == np.int64  # whole: counts
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        histogram([0.5, 1.5], [0, 1, 2], [-1.0, 2])
    tiny = histogram([0.5, 1.5], [0, 1, 2], [1e17, 0.25])
    assert tiny.tolist() == [1e17, 0.25]


# uneven bins

UNEVEN = [0.0, 1, 2, 4, 10]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_power_tempers_densities(power):
    """Labels uniform on 0..10 stay so at any power."""
    prior = Bins.fit(np.linspace(0.005, 9.995, 1000), UNEVEN, power=power)
    assert prior.weights.tolist() == pytest.approx([0.1, 0.1, 0.2, 0.6])


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("over", ["fit", "centers", "batch"])
def test_a_histogram_balances_labels_not_bins(power, over):
    """The best logits for uniform labels are uniform over labels, and so is their median."""
    labels = torch.linspace(0.005, 9.995, 1000, dtype=D64)
    if over == "batch" and power < 1:
        return
    priors = {
        "fit": lambda: Bins.fit(labels.numpy(), UNEVEN, power=power),
        "centers": lambda: Bins(labels, torch.ones(1000, dtype=D64), power=power),
        "batch": Batch,
    }
    likelihood = Histogram(torch.tensor(UNEVEN, dtype=D64))
    loss = BalancedLoss(likelihood, priors[over]())
    logits = torch.tensor([0.1, 0.1, 0.2, 0.6], dtype=D64).log().expand(1000, 4)
    slope = evaluate(loss, logits, labels[:, None])[1].sum(0)
    assert_close(slope, torch.zeros_like(slope), 1e-7)  # the weights of counts are float32
    assert likelihood.decode(logits[:1]).item() == pytest.approx(5.0)


def test_theorem_1_on_uneven_bins():
    """Summed over the bins, the model's p_train(y | x) is one."""
    labels = np.random.default_rng(0).gamma(2, 1.2, 500).clip(0, 10)
    for power in (0.5, 1.0):
        prior = Bins.fit(labels, UNEVEN, power=power)
        loss = BalancedLoss(Histogram(UNEVEN), prior, full_nll=True)
        pred = torch.randn(1, 4, generator=generator(), dtype=D64)
        rows = loss.rows(pred.expand(4, -1), prior.centers.to(D64)[:, None])
        assert (-rows).exp().sum().item() == pytest.approx(1)


def test_a_label_has_the_probability_of_its_own_bin():
    prior = Bins.fit([0.5, 3.0, 5.0, 6, 7], UNEVEN)
    at = prior.log_prob(torch.tensor([[4.5], [2.1], [3.9], [0.2]])).exp()  # 4.5 is nearest to 3
    assert at.tolist() == pytest.approx([0.6, 0.2, 0.2, 0.2])


def test_smoothing_of_uneven_bins_is_of_densities():
    prior = Bins.fit(np.linspace(0.005, 9.995, 1000), UNEVEN, smoothing={"padding": "reflect"})
    assert prior.weights.tolist() == pytest.approx([0.1, 0.1, 0.2, 0.6], rel=1e-6)


@pytest.mark.parametrize("count", [20, 5000])
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_no_power_is_the_plain_loss(kind, count):
    likelihood = kind(torch.tensor(3.0, dtype=D64))
    prior = Bins.fit(np.arange(11.0), np.arange(-0.5, 11), power=0)
    pred = torch.linspace(-5, 15, count, dtype=D64)[:, None]
    target = torch.full_like(pred, 10.0)
    ours, plain = (evaluate(BalancedLoss(likelihood, p), pred, target) for p in (prior, Flat()))
    assert_close(ours, plain, 1e-12)


@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_a_learned_scale_stays_above_a_quarter_of_a_bin(kind):
    """Below, predictions between two centres have no evidence, and the loss no minimum."""
    y = 10 * torch.rand(512, 1, generator=generator())
    prior = Bins.fit(y.numpy(), np.linspace(0, 10, 6))
    likelihood = kind(1.0, **{"learn_sigma" if kind is Gaussian else "learn_scale": True})
    loss = BalancedLoss(likelihood, prior)
    optimiser = torch.optim.Adam(loss.parameters(), 0.05)
    for _ in range(60):
        optimiser.zero_grad()
        loss(y + 0.05 * torch.randn(512, 1, generator=generator()), y).backward()
        optimiser.step()
    assert likelihood.value.item() >= 0.5
    assert kind(0.01).value.item() == pytest.approx(0.01)  # a fixed one is the caller's


# pairs


def test_blocks_of_a_scale_for_every_sample():
    pred, target = torch.randn(9, 8, dtype=D64), torch.randn(9, 4, dtype=D64)
    likelihood = Heteroscedastic(Laplace(torch.tensor(0.8, dtype=D64)))
    found = Product([Batch(), Batch()]).log_evidence(likelihood, pred, target)
    expected = sum(
        Batch().log_evidence(likelihood, pred[:, [*b, *(k + 4 for k in b)]], target[:, b])
        for b in ([0, 1], [2, 3])
    )
    assert_close(found, expected, 1e-12)


@pytest.mark.parametrize(
    "likelihood",
    [Gaussian([1.0, 1, 1, 2]), Laplace(), Huber(), Heteroscedastic(Gaussian())],
)
def test_a_subspace_needs_equal_noise_in_all_directions(likelihood):
    loss = BalancedLoss(likelihood, Subspace(Batch(), torch.eye(4)))
    with pytest.raises(ValueError, match="Subspace needs a Gaussian with one sigma"):
        loss(torch.randn(5, likelihood.width(4)), torch.randn(5, 4))


# outside the labels

SHAPES = {
    "Laplace": lambda: Laplace(3.0),
    "Huber": lambda: Huber(3.0),
    "own Laplace": lambda: Heteroscedastic(Laplace(3.0)),
    "own Huber": lambda: Heteroscedastic(Huber(3.0)),
}


@pytest.mark.parametrize("count", [50, 5000])
@pytest.mark.parametrize("over", ["batch", "bins", "mixture"])
@pytest.mark.parametrize("shape", SHAPES)
def test_outside_the_labels_the_plain_loss_leads_back(shape, over, count, small_limits):
    count = count // small_limits if over == "batch" else count
    if over == "mixture" and shape != "Laplace":
        pytest.skip("no closed form")
    likelihood = SHAPES[shape]()
    labels = 20 + 60 * torch.rand(count, 1, generator=generator(), dtype=D64)
    priors = {
        "batch": Batch,
        "bins": lambda: Bins.fit(labels.numpy(), range(20, 81)),
        "mixture": lambda: GaussianMixture.fit(labels, 2),
    }
    prior, plain = BalancedLoss(likelihood, priors[over]()), BalancedLoss(likelihood, Flat())
    for start in (-30.0, 150.0):
        pred = torch.zeros(count, likelihood.width(1), dtype=D64)
        pred[:, 0] = start
        ours = evaluate(prior, pred, labels)[1][:, 0]
        expected = evaluate(plain, pred, labels)[1][:, 0]
        assert_close(ours, expected, 1e-12)
        assert (ours * (start - 50) > 0).all()


# torch's tools


@pytest.mark.parametrize("count", [6, 1100])
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Huber])
def test_functional_call_with_a_fixed_scale(kind, count):
    loss = BalancedLoss(kind(1.0), Bins([-1.0, 0, 1], [1.0, 2, 3]))
    pred, target = torch.randn(2, count, 1, generator=generator())
    name = f"likelihood.{loss.likelihood.symbol}"
    scale = torch.tensor(0.5, requires_grad=True)
    value = functional_call(loss, {name: scale}, (pred, target))
    assert_close(value, BalancedLoss(kind(0.5), loss.prior)(pred, target), 1e-6)
    slope = grad(lambda s: functional_call(loss, {name: s}, (pred, target)))(scale.detach())
    assert_close(torch.autograd.grad(value, scale)[0], slope, 1e-5)


@pytest.mark.parametrize(
    "pair",
    [
        "Gaussian Batch 1",
        "Gaussian Bins 1",
        "Gaussian Mixture 3",
        "Laplace Batch 3",
        "Laplace Mixture 1",
        "Histogram Bins 1",
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_export_with_a_dynamic_batch(pair, weighted):
    loss = make(pair, torch.float32)
    size = torch.export.Dim("size", min=2, max=100_000)
    given = [*batch(pair, 6, torch.float32)] + [torch.rand(6)] * weighted
    shapes = {"pred": {0: size}, "target": {0: size}} | ({"weight": {0: size}} if weighted else {})
    exported = torch.export.export(loss, tuple(given), dynamic_shapes=shapes).module()
    for count in (3, 2500 if "Batch" not in pair else 300):
        given = [*batch(pair, count, torch.float32, seed=count)] + [torch.rand(count)] * weighted
        assert_close(exported(*given), loss(*given), 1e-5)
