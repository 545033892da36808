"""Reports against slow loops over samples."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from metrics import age_report, depth_report, groups, mesh_report, similarity_report

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


def test_masked_pixels_are_ignored():
    target = torch.tensor([[1.0, 2.0], [0.0, torch.nan]])
    pred = torch.tensor([[1.5, 2.5], [torch.inf, 1.0]])
    mask = np.array([[1, 1], [0, 0]], dtype=np.uint8)
    assert depth_report(pred[None], target, mask)["mae"] == 0.5


def test_groups_without_samples_are_nan_and_exact_predictions_have_gm_zero():
    report = age_report([30.0, 31.0], [32.0, 32.0], train_labels=[32] * 50)
    assert (report["mae_medium"], report["bmae_medium"]) == (1.5, 1.5)
    empty = [value for key, value in report.items() if key.endswith(("_many", "_few"))]
    assert len(empty) == 10
    assert all(math.isnan(value) for value in empty)
    assert math.isnan(mesh_report({"mpvpe": [1.0]}, [1.0])["bmpvpe_tail10"])
    assert age_report([30.0, 99.0], [30.0, 31.0], [30])["gm"] == 0.0


def test_similarity_report_agrees_with_scipy():
    rng = np.random.default_rng(0)
    train = np.concatenate([np.full(101, 0.05), np.full(30, 2.25), np.full(29, 4.95)])
    target = rng.choice([0.05, 2.25, 4.95, 3.35], size=200) + 0.02 * rng.random(200)
    pred = target + rng.normal(size=200)
    report = similarity_report(pred, target, train)
    members = {
        "": np.ones(200, bool),
        "_many": target < 1,
        "_medium": np.abs(target - 2.25) < 0.1,
        "_few": (np.abs(target - 3.35) < 0.1) | (target > 4.9),
    }
    for suffix, inside in members.items():
        p, t = pred[inside], target[inside]
        assert report[f"mse{suffix}"] == pytest.approx(np.mean((p - t) ** 2))
        assert report[f"pearson{suffix}"] == pytest.approx(pearsonr(p, t)[0])
        assert report[f"spearman{suffix}"] == pytest.approx(spearmanr(p, t)[0])


# Bin edges that the loops do not reach


def test_similarity_shots_and_bins():
    labels = np.concatenate([np.full(101, 0.05), np.full(30, 2.25), np.full(29, 4.95)])
    shots = groups.similarity_shots(labels)
    assert shots[[0, 22, 49, 33]].tolist() == [groups.MANY, groups.MEDIUM, groups.FEW, groups.FEW]
    scores = torch.tensor([0.0, 0.1, 4.99, 5.0])
    assert groups.similarity_bins(scores).tolist() == [0, 1, 49, 49]
    # 0.6 in float32 is above the edge 0.6 in float64; both are rounded before they are compared.
    tenths = torch.arange(51, dtype=torch.float64) / 10
    edges = np.histogram_bin_edges(np.array([], np.float32), 50, range=(0.0, 5.0))
    expected = [min(49, int(np.sum(edges <= np.float32(x))) - 1) for x in tenths.numpy()]
    assert groups.similarity_bins(tenths).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_depth_bins_of_every_whole_millimetre_and_beyond_ten_metres(dtype):
    millimetres = np.arange(1, 10_000)
    depth = torch.from_numpy((millimetres / 1000).astype(dtype)).double()
    assert groups.depth_bins(depth).tolist() == (millimetres // 100).tolist()
    assert groups.depth_bins(torch.tensor([9.95, 10.0, 12.3, 1e30])).tolist() == [99] * 4


def test_rarity_regions():
    regions = groups.rarity_regions(torch.linspace(3.0, 7.0, 1001, dtype=torch.float64))
    assert (regions[0], regions[-1]) == (0, 99)
    assert (regions.diff() >= 0).all()
    assert len(regions.unique()) == 100
    edges = torch.arange(101, dtype=torch.float64)  # width 1: an edge falls in the region below
    assert groups.rarity_regions(edges).tolist() == [0, *range(100)]
    assert groups.rarity_regions(torch.full((5,), 2.0)).tolist() == [0] * 5
