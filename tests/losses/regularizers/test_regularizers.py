"""Regularisers: against the released code, against loops, and their properties.

The numbers of the released code were computed in float64 on the batches of `batch`: RankSim, ConR
and SRL (AgeDB folders), Rank-N-Contrast, Ordinal Entropy (AgeEstimation), Dist Loss.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, distributed
from torch.nn import functional

from losses.regularizers import SRL, ConR, DistLoss, OrdinalEntropy, RankSim, RnC
from losses.regularizers.dist_loss import soft_sort
from tests import process

LABELS = np.arange(20, 32)
OFFICIAL = {  # value, norm and first three numbers of the gradient
    "RankSim": (142.90008544921875, 1.7078980058646553, [-0.10229742, 0.46760148, 0.12347325]),
    "ConR": (26.796652521320723, 5.827478352931626, [0.09383499, -0.28434462, -0.21318145]),
    "RnC": (2.5375875566021144, 0.03825598187225421, [-0.00015156, -0.00168376, -0.001901]),
    "OrdinalEntropy": (
        *(0.00048783905248502897, 7.625689118197526e-05),
        [-1.21821530e-06, 1.31576390e-06, -3.68233138e-07],
    ),
    "contrast": (1.2393862749655398, 0.15293461752609874, [-0.02189108, -0.00529222, 0.01396381]),
    "envelope": (0.43470565082255164, 0.0161347187130911, [0.00238417, -0.00049618, -0.00037658]),
    "homogeneity": (1.5021596832644024, 1.5395023750802346, [0.21644558, 0.2423918, 0.08793655]),
}
SINGLE = 2e-7  # the released code computes ranks and random points in float32
METHODS = {
    "RankSim": RankSim,
    "ConR": ConR,
    "RnC": RnC,
    "OrdinalEntropy": OrdinalEntropy,
    "SRL": lambda: SRL().fit(LABELS[:, None]),
    "DistLoss": lambda: DistLoss().fit(LABELS[:, None]),
}


def batch(seed: int, n: int = 24, labels: np.ndarray = LABELS) -> tuple[Tensor, Tensor, Tensor]:
    """Return features (n, 8), predictions and labels (n, 1), float64."""
    rng = np.random.default_rng(seed)
    features = torch.tensor(rng.normal(size=(n, 8)), requires_grad=True)
    y = torch.tensor(rng.choice(labels, n).astype(float)[:, None])
    return features, (y + 3 * torch.tensor(rng.normal(size=(n, 1)))).requires_grad_(), y


def agree(name: str, value: Tensor, z: Tensor, tolerance: float = 1e-10) -> None:
    expected, norm, first = OFFICIAL[name]
    slope = torch.autograd.grad(value, z)[0]
    assert value.item() == pytest.approx(expected, rel=tolerance)
    assert slope.norm().item() == pytest.approx(norm, rel=tolerance)
    np.testing.assert_allclose(slope.flatten()[:3], first, rtol=1e-4)  # as many digits as above


@pytest.mark.parametrize(
    ("method", "seed", "tolerance"),
    [(RankSim, 0, SINGLE), (RnC, 2, 1e-10), (OrdinalEntropy, 3, 1e-10)],
)
def test_value_and_gradient_of_the_released_code(method, seed: int, tolerance: float):
    z, pred, y = batch(seed)
    y = torch.cat([y[:12], y[:12]]) if method is RnC else y  # two views
    agree(method.__name__, method()(z, pred, y), z, tolerance)


def conr_loop(z: Tensor, pred: Tensor, y: Tensor, released: bool) -> Tensor:
    z, total = functional.normalize(z, dim=1), z.new_zeros(())
    y, pred = y.numpy(), pred.detach().numpy()
    for i in range(len(z)):
        near = [j for j in range(len(z)) if j != i and abs(y[i] - y[j]) <= 1]
        wrong = [j for j in range(len(z)) if abs(y[i] - y[j]) > 1 and abs(pred[i] - pred[j]) <= 1]
        if near and wrong:
            s = (z @ z[i]) / 0.07
            weight = torch.from_numpy(np.exp(0.01 * abs(y[i, 0] - y[wrong, 0])))
            below = s[near].exp().sum() + (weight * s[wrong].exp()).sum()
            below = below + (len(z) - len(near)) * released  # exp(0) of the other samples
            total = total - (s[near].exp() / below).log().mean()
    return 4 * total / len(z)


def test_conr_differs_from_the_released_code_by_the_ones_in_the_denominator():
    z, pred, y = batch(1)
    agree("ConR", conr_loop(z, pred, y, True), z)
    value, loop = ConR()(z, pred, y), conr_loop(z, pred, y, False)
    torch.testing.assert_close(value, loop)
    slopes = [torch.autograd.grad(each, z)[0] for each in (value, loop)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("part", ["contrast", "envelope", "homogeneity"])
def test_srl_is_that_of_the_released_code(part: str):
    """Homogeneity: half of ours minus a constant plus a tenth of the variance of the cosines."""
    z, pred, y = batch(4, labels=np.arange(12))
    parts = {"contrast": 0.0, "envelope": 0.0, "homogeneity": 0.0, part: 1.0}
    srl = SRL(**parts).double().fit(np.arange(12.0)[:, None])
    srl(z, pred, y)
    earlier = torch.tensor(np.random.default_rng(5).normal(size=(12, 8)))
    srl.centroids.copy_(functional.normalize(earlier, dim=1))
    value = srl(z, pred, y)
    if part == "homogeneity":
        unit, rows = functional.normalize(z, dim=1), []
        for k in range(12):
            own = unit[y[:, 0] == k]
            rows.append(own.mean(0) if len(own) else srl.centroids[k])
        c = functional.normalize(torch.stack(rows), dim=1)
        value = value / 2 - 11 + 0.1 * (c[1:] * c[:-1]).sum(1).var()
    agree(part, value, z, SINGLE if part == "envelope" else 1e-10)


def test_soft_sort_is_the_projection():
    """A gap of 37 with 1 / strength = 10: the four values around it get steps of 10."""
    x = torch.tensor([3.0, -1.0, 0.5, 40.0, 44.0], dtype=torch.float64, requires_grad=True)
    made = soft_sort(x, strength=0.1)
    torch.testing.assert_close(made, torch.tensor([-1, 6.875, 16.875, 26.875, 36.875]).double())
    slope = torch.autograd.grad((made * torch.arange(5)).sum(), x)[0]
    assert slope.tolist() == [2.5, 0, 2.5, 2.5, 2.5]


def test_dist_loss_compares_with_the_quantiles_of_the_labels():
    labels = np.random.default_rng(0).gamma(4, 8, (5000, 1))
    dist = DistLoss(bandwidth=0.05).fit(labels)
    quantiles = torch.tensor(np.quantile(labels, (np.arange(200) + 0.5) / 200)[:, None])
    z = torch.zeros(200, 1)
    for shift in (0, 3):
        shuffled = (quantiles + shift)[torch.randperm(200)]
        assert dist(z, shuffled, shuffled).item() == pytest.approx(shift, abs=0.3)  # bandwidth
    counted, count = np.unique(np.round(labels), return_counts=True)
    weighted = DistLoss().fit(counted[:, None], sample_weight=count)
    torch.testing.assert_close(weighted.cdf, DistLoss().fit(np.round(labels)).cdf)


def ordered(n: int = 9) -> tuple[Tensor, Tensor]:
    """Features on an arc in the order of the labels, and labels without equal distances."""
    y = torch.tensor([0, 1, 3, 7, 12, 20, 30, 44, 65.0])[:n, None]
    return torch.cat([torch.cos(y / 60), torch.sin(y / 60)], 1).requires_grad_(), y


def test_minimum_for_ordered_features():
    z, y = ordered()
    assert RankSim()(z, y, y).item() == 0
    assert torch.autograd.grad(RankSim()(z, y, y), z)[0].abs().max() == 0
    swapped = z[[0, 1, 5, 3, 4, 2, 6, 7, 8]]
    # Far apart, the nearest of the samples in a sum has all the weight. Of 17 others, 16 share it
    # with their second view.
    far = RnC()(6e4 * torch.cat([z, z]), torch.cat([y, y]), torch.cat([y, y]))
    assert far.item() == pytest.approx(16 / 17 * math.log(2), rel=1e-3)
    for method in (RankSim(), RnC(), OrdinalEntropy(1.0), SRL(contrast=0, envelope=0).fit(y)):
        assert method(z, y, y) < method(swapped, y, y)
    assert ConR()(z, y, y) == 0  # right predictions: no negatives


@pytest.mark.parametrize("name", METHODS)
def test_properties(name: str):
    """Order of the batch, ties, constant labels, small batches and half precision."""
    z, pred, y = batch(8, 11, LABELS)
    y = torch.arange(11.0)[:, None].double() * 1.1 + 20  # one sample each
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    method = METHODS[name]().eval()
    value = method(z, pred, y)
    torch.testing.assert_close(method(z[order], pred[order], y[order]), value)
    half = method(z.bfloat16(), pred.bfloat16(), y.bfloat16())
    assert half.dtype == torch.float32
    exact = method(z.bfloat16().double(), pred.bfloat16().double(), y.bfloat16().double())
    torch.testing.assert_close(half.double(), exact, rtol=1e-4, atol=1e-5)  # float32
    edge = [(z[:2], y[:2] * 0 + 25), (z[:2], y[:2]), (z[:1], y[:1]), (z, y * 0 + 25)]
    edge += [(z, y.round() // 3 + 20), (z * 0, y), (z[:1].expand(11, 8), y)]
    for features, labels in edge:
        features = features.detach().requires_grad_()
        made = method(features, pred[: len(labels)].detach().requires_grad_(), labels)
        assert made.isfinite()
        if made.requires_grad and method.uses_features:
            slope = torch.autograd.grad(made, features, allow_unused=True)[0]
            assert slope is None or slope.isfinite().all()
    for bad in ((z[:5], pred, y), (z, pred, y[:, 0]), (z, pred, y * math.nan), ([0.0], pred, y)):
        with pytest.raises((ValueError, TypeError), match=r"Expected|finite"):
            method(*bad)


@pytest.mark.parametrize("method", [RankSim(), RnC()])
def test_only_the_order_of_label_distances_matters(method):
    z, pred, _ = batch(9, 9)
    _, y = ordered()
    changed = [(5 * y.double() - 100), -y.double(), torch.cat([y, y], 1).double()]
    for labels in changed:
        torch.testing.assert_close(method(z, pred, labels), method(z, pred, y.double()))
    assert method(z, pred, y.double().sqrt()) != method(z, pred, y.double())  # another order


def test_state_is_restored():
    """SRL with the centroids of earlier epochs, loaded into a new module."""
    z, pred, y = batch(10)
    srl = METHODS["SRL"]()
    for _ in range(2):
        srl(z, pred, y)
        srl.end_epoch()
    srl(z, pred, y)
    again = METHODS["SRL"]()
    again.load_state_dict(srl.state_dict())
    few = z[:3], pred[:3], y[:3]
    torch.testing.assert_close(srl(*few), again(*few))
    assert not torch.isclose(srl(*few), METHODS["SRL"]()(*few))


def test_a_large_batch_is_sampled():
    z, pred, y = batch(11, 50)
    assert torch.isfinite(RnC(limit=10)(z, pred, y))
    with pytest.raises(ValueError, match="limit"):
        RnC(limit=1)
    with pytest.raises(ValueError, match="fit"):
        SRL()(z, pred, y)
    with pytest.raises(ValueError, match="fit"):
        DistLoss()(z, pred, y)


def slopes(name: str, rows: slice) -> Tensor:
    """Return the value and the gradients to a layer before the features and the predictions."""
    z, pred, y = batch(12, 10)
    layer = torch.eye(8).double().requires_grad_()
    shift = torch.zeros(1).double().requires_grad_()
    value = METHODS[name]()(z[rows].detach() @ layer, pred[rows].detach() + shift, y[rows])
    found = torch.autograd.grad(value, [layer, shift], allow_unused=True)
    flat = [torch.zeros(0) if one is None else one.flatten() for one in found]
    return torch.cat([value.detach()[None], *flat])


def run_rank(rank: int, folder: str) -> None:
    made = {}
    for name in METHODS:
        mean = slopes(name, (slice(0, 7), slice(7, 10))[rank])
        distributed.all_reduce(mean)  # as DDP
        made[name] = mean / 2
    torch.save(made, Path(folder, f"{rank}.pt"))


def test_two_ranks_are_one_process_with_the_whole_batch(tmp_path: Path):
    process.ranks(run_rank, tmp_path)
    for rank in range(2):
        made = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name in METHODS:
            torch.testing.assert_close(made[name], slopes(name, slice(None)), rtol=1e-10, atol=1e-9)
