"""Reports against slow loops over samples, and the classes against the functions."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import AgeMetrics, DepthMetrics, MeshMetrics, age_report, depth_report, mesh_report

# float64 sums of a few hundred terms, in another order: 1e-10 leaves room for exp(mean log).
CLOSE = {"rel": 1e-10, "abs": 1e-12, "nan_ok": True}
quick = settings(max_examples=40, deadline=None)

# Multiples of 1/64 year: errors are 0 or large enough that their product cannot underflow.
ages = st.integers(0, 200 * 64).map(lambda k: k / 64)
age_samples = st.lists(
    st.tuples(st.integers(-10 * 64, 210 * 64).map(lambda k: k / 64), ages), min_size=1, max_size=30
)
train_counts = st.dictionaries(
    st.integers(0, 200), st.sampled_from([1, 19, 20, 100, 101]), min_size=1, max_size=20
)
# Targets in whole millimetres, so that bins follow from integers; predictions in thirds between
# them, so that no ratio equals 1.25, 1.25^2 or 1.25^3.
depth_samples = st.lists(
    st.tuples(st.integers(-100, 12_000), st.integers(1, 12_000), st.booleans()),
    min_size=1,
    max_size=60,
)
mesh_samples = st.lists(
    st.tuples(st.floats(0, 300), st.floats(0, 300), st.floats(10, 1000)), min_size=1, max_size=80
)


def mean(values):
    return math.fsum(values) / len(values) if values else math.nan


def spread_over(report, name, items, average, balanced=True):
    """items: (bin, shot, error) of every sample; fills name, name_many, ..., bname, ..."""
    for suffix, shot in (("", None), ("_many", "many"), ("_medium", "medium"), ("_few", "few")):
        chosen = [item for item in items if shot in (None, item[1])]
        bins = {b: [err for c, _, err in chosen if c == b] for b, _, _ in chosen}
        report[name + suffix] = average([err for _, _, err in chosen])
        if balanced:
            report[f"b{name}{suffix}"] = mean([average(inside) for inside in bins.values()])


def age_oracle(pred, target, counts):
    def shot(age):
        n = counts.get(age, 0)
        return "many" if n > 100 else "few" if n < 20 else "medium"

    def geometric_mean(values):
        return math.prod(values) ** (1 / len(values)) if values else math.nan

    report = {}
    for name, error, average, balanced in (
        ("mae", lambda p, t: abs(p - t), mean, True),
        ("mse", lambda p, t: (p - t) ** 2, mean, True),
        ("gm", lambda p, t: abs(p - t), geometric_mean, False),
    ):
        items = [(int(t), shot(int(t)), error(p, t)) for p, t in zip(pred, target, strict=True)]
        spread_over(report, name, items, average, balanced)
    return report


def depth_oracle(pred, target, millimetres):
    """The bins come from whole millimetres, not from the floats that the report sees."""
    many = {*range(9, 46), 47, 49}
    medium = {7, 8, 46, 48, 50, 51, 52, 53, 54, 55, 56, 58, 60, 61, 63}

    def shot(b):
        return "many" if b in many else "medium" if b in medium else "few" if b >= 7 else "none"

    def root_mean(values):
        return math.sqrt(mean(values)) if values else math.nan

    def ratio(p, t):
        return max(p / t, t / p) if p > 0 else math.inf

    kinds = [
        ("mae", lambda p, t: abs(p - t), mean),
        ("mse", lambda p, t: (p - t) ** 2, mean),
        ("rmse", lambda p, t: (p - t) ** 2, root_mean),
        ("abs_rel", lambda p, t: abs(p - t) / t, mean),
        ("log10", lambda p, t: abs(math.log10(p / t)) if p > 0 else math.inf, mean),
        ("delta1", lambda p, t: float(ratio(p, t) < 1.25), mean),
        ("delta2", lambda p, t: float(ratio(p, t) < 1.25**2), mean),
        ("delta3", lambda p, t: float(ratio(p, t) < 1.25**3), mean),
    ]
    bins = [min(mm // 100, 99) for mm in millimetres]
    report = {}
    for name, error, average in kinds:
        errors = [error(p, t) for p, t in zip(pred, target, strict=True)]
        items = [(b, shot(b), err) for b, err in zip(bins, errors, strict=True)]
        spread_over(report, name, items, average)
    return report


def mesh_oracle(errors, rarity):
    width = (max(rarity) - min(rarity)) / 100
    regions = [int((d - min(rarity)) / width - 0.001) if width else 0 for d in rarity]
    order = sorted(range(len(rarity)), key=lambda i: (-rarity[i], i))
    report = {}
    for name, values in errors.items():
        inside = {r: [v for v, s in zip(values, regions, strict=True) if s == r] for r in regions}
        report[name] = mean(values)
        report[f"b{name}"] = mean([mean(v) for v in inside.values()])
        for percent in (10, 5):
            tail = order[: int(len(rarity) * percent / 100)]
            report[f"b{name}_tail{percent}"] = mean([values[i] for i in tail])
    return report


@quick
@given(age_samples, train_counts)
def test_age_report_matches_loops(samples, counts):
    pred, target = (list(column) for column in zip(*samples, strict=True))
    train_labels = np.repeat(list(counts), list(counts.values()))
    report = age_report(np.array(pred), torch.tensor(target)[:, None], train_labels)
    assert report == pytest.approx(age_oracle(pred, target, counts), **CLOSE)
    assert all(type(value) is float for value in report.values())


@quick
@given(depth_samples, st.sampled_from([np.float32, np.float64]))
def test_depth_report_matches_loops(samples, dtype):
    thirds, millimetres, keep = (np.array(column) for column in zip(*samples, strict=True))
    keep[0] = True
    pred = ((3 * thirds + 1) / 3000).astype(dtype)
    target = (millimetres / 1000).astype(dtype)
    seen = [values[keep].astype(float).tolist() for values in (pred, target)]
    expected = depth_oracle(*seen, millimetres[keep].tolist())
    assert depth_report(pred, target, mask=keep) == pytest.approx(expected, **CLOSE)
    assert depth_report(pred[keep], target[keep]) == pytest.approx(expected, **CLOSE)


@quick
@given(mesh_samples)
def test_mesh_report_matches_loops(samples):
    mpvpe, mpjpe, rarity = (list(column) for column in zip(*samples, strict=True))
    errors = {"mpvpe": mpvpe, "mpjpe": mpjpe}
    report = mesh_report({k: torch.tensor(v).double() for k, v in errors.items()}, np.array(rarity))
    errors = {k: torch.tensor(v).tolist() for k, v in errors.items()}  # as rounded to float32
    assert report == pytest.approx(mesh_oracle(errors, rarity), **CLOSE)


def test_pixels_under_the_mask_may_be_anything():
    target = torch.tensor([[1.0, 2.0], [0.0, torch.nan]])
    pred = torch.tensor([[1.5, 2.5], [torch.inf, 1.0]])
    mask = np.array([[1, 1], [0, 0]], dtype=np.uint8)
    assert depth_report(pred[None], target, mask)["mae"] == 0.5


def test_groups_without_samples_are_nan():
    report = age_report([30.0, 31.0], [32.0, 32.0], train_labels=[32] * 50)
    assert (report["mae_medium"], report["bmae_medium"]) == (1.5, 1.5)
    empty = [value for key, value in report.items() if key.endswith(("_many", "_few"))]
    assert len(empty) == 10
    assert all(math.isnan(value) for value in empty)
    assert math.isnan(mesh_report({"mpvpe": [1.0]}, [1.0])["bmpvpe_tail10"])


def test_an_exact_prediction_has_geometric_mean_zero():
    assert age_report([30.0, 99.0], [30.0, 31.0], [30])["gm"] == 0.0


def ragged(n, generator):
    """Sizes that sum to n, an empty one and a single one among them."""
    cuts = sorted({0, 1, n, *generator.integers(1, n, size=4).tolist()})
    return [slice(a, b) for a, b in pairwise(cuts)] + [slice(n, n)]


# Below, class and function share the errors and groupings, which the loops above vouch for; what is
# tested is accumulation, whose sums run in another order: CLOSE.
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_age_class_over_ragged_batches(dtype):
    rng = np.random.default_rng(0)
    target = torch.from_numpy(rng.integers(0, 90, 500)).to(dtype)
    pred = target + torch.from_numpy(rng.normal(scale=8, size=500)).to(dtype)
    train_labels = rng.integers(0, 90, 4000) ** 2 // 90
    metric = AgeMetrics(train_labels)
    for part in ragged(500, rng):
        metric.update(pred[part, None], target[part])
    assert metric.compute() == pytest.approx(age_report(pred, target, train_labels), **CLOSE)
    assert metric.totals.shape == (4, 201)


def test_depth_class_over_ragged_batches():
    rng = np.random.default_rng(1)
    target = torch.from_numpy(rng.uniform(0.5, 10, (40, 1, 6, 8))).float()
    pred = target * torch.from_numpy(rng.uniform(0.6, 1.6, target.shape)).float()
    mask = torch.from_numpy(rng.uniform(size=target.shape) < 0.5)
    mask[1:3] = False
    metric = DepthMetrics()
    for part in ragged(40, rng):
        metric.update(pred[part], target[part], mask[part])
    assert metric.compute() == pytest.approx(depth_report(pred, target, mask), **CLOSE)
    assert metric.totals.shape == (9, 100)


def test_mesh_class_over_ragged_batches():
    rng = np.random.default_rng(2)
    errors = {name: rng.uniform(20, 200, 300) for name in ("mpvpe", "mpjpe", "pa_mpjpe")}
    rarity = rng.gamma(3, 60, 300)
    metric = MeshMetrics()
    for part in ragged(300, rng):
        metric.update({name: values[part] for name, values in errors.items()}, rarity[part])
    assert metric.compute() == pytest.approx(mesh_report(errors, rarity), **CLOSE)


def test_reset_forgets():
    metric, mesh = AgeMetrics([30] * 50), MeshMetrics(names=["mpvpe"])
    for error in (50.0, 3.0):
        metric.reset()
        mesh.reset()
        metric.update([30.0 + error], [30.0])
        mesh.update({"mpvpe": [error]}, [1.0])
    assert metric.compute()["mae"] == 3.0
    assert mesh.compute()["mpvpe"] == 3.0
