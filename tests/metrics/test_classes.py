"""The classes against the functions: over batches, ranks and bootstrap replicates."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from metrics import (
    AgeMetrics,
    BalancedMetrics,
    DepthMetrics,
    MeshMetrics,
    SimilarityMetrics,
    age_report,
    balanced_report,
    depth_report,
    mesh_report,
    similarity_report,
)
from metrics.groups import SHOTS
from metrics.report import bootstrap_weights
from tests import process

N = 301  # odd: two ranks cannot have equal shares
# float64 sums in another order.
CLOSE: dict[str, Any] = {"rel": 1e-10, "abs": 1e-12, "nan_ok": True}
RNG = np.random.default_rng(0)


class Case(NamedTuple):
    metric: Callable[[], Any]
    report: Callable[..., dict[str, float]]
    arrays: tuple[np.ndarray, ...]  # of N samples

    def batch(self, samples) -> tuple:
        return tuple(array[samples] for array in self.arrays)


def mesh(*columns: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    *errors, rarity = columns
    return dict(zip(("mpvpe", "mpjpe", "pa_mpjpe"), errors, strict=True)), rarity


class Mesh(MeshMetrics):
    """Takes the errors as columns, so that batches are slices as in the other classes."""

    def samples(self, *columns):
        return super().samples(*mesh(*columns))


AGES, TRAIN_AGES = RNG.integers(0, 90, (N, 1)).astype(float), RNG.integers(0, 90, 4000) ** 2 // 90
DEPTHS = RNG.uniform(0.5, 10, (N, 1, 3, 4)).round(3)
SCORES, TRAIN_SCORES = (np.clip(RNG.gamma(2, 1, n), 0, 5).round(1) for n in ((N, 1), 4000))
MASK = RNG.uniform(size=DEPTHS.shape) < 0.5
MASK[1:3] = False
CASES = {
    "age": Case(
        lambda: AgeMetrics(TRAIN_AGES),
        lambda pred, target: age_report(pred, target, TRAIN_AGES),
        (AGES + RNG.normal(scale=8, size=AGES.shape), AGES),
    ),
    "balanced": Case(
        lambda: BalancedMetrics(TRAIN_AGES),  # some targets lie beyond
        lambda pred, target: balanced_report(pred, target, TRAIN_AGES),
        (AGES + RNG.normal(scale=8, size=AGES.shape), AGES * 1.3 - 9),
    ),
    "depth": Case(
        DepthMetrics, depth_report, (DEPTHS * RNG.uniform(0.6, 1.6, DEPTHS.shape), DEPTHS, MASK)
    ),
    "mesh": Case(
        Mesh,
        lambda *columns: mesh_report(*mesh(*columns)),
        (*RNG.uniform(20, 200, (3, N)), RNG.gamma(3, 60, N)),
    ),
    "similarity": Case(
        lambda: SimilarityMetrics(TRAIN_SCORES),
        lambda pred, target: similarity_report(pred, target, TRAIN_SCORES),
        (SCORES + RNG.normal(size=SCORES.shape), SCORES),
    ),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@cases
def test_ragged_batches_and_reset(case: Case):
    metric = case.metric()
    metric.update(*case.batch(slice(7)))
    metric.reset()
    for start, stop in pairwise([0, 1, 60, 61, 250, N, N]):  # the last batch is empty
        metric.update(*case.batch(slice(start, stop)))
    report = metric.compute()
    assert report == pytest.approx(case.report(*case.arrays), **CLOSE)
    assert list(report) == list(metric.names_reported)


def run_rank(rank: int, folder: str) -> None:
    """Three batches for rank 0, one for rank 1; `unfed` has none on rank 1."""
    metrics = {name: case.metric() for name, case in CASES.items()} | {"unfed": Mesh()}
    for start, stop in ([(0, 100), (100, 101), (101, 180)], [(180, N)])[rank]:
        for name, case in CASES.items():
            metrics[name].update(*case.batch(slice(start, stop)))
        if rank == 0:
            metrics["unfed"].update(*CASES["mesh"].batch(slice(start, stop)))
    metrics["unfed"].to("cpu")  # a device move must not change the type that rank 1 gathers
    reports = {name: metric.compute() for name, metric in metrics.items()}
    Path(folder, f"{rank}.json").write_text(json.dumps(reports))


def test_two_ranks_equal_one(tmp_path: Path):
    process.ranks(run_rank, tmp_path)
    expected = {name: case.report(*case.arrays) for name, case in CASES.items()}
    expected["unfed"] = CASES["mesh"].report(*CASES["mesh"].batch(slice(180)))
    for rank in range(2):
        reports = json.loads((tmp_path / f"{rank}.json").read_text())
        assert reports.keys() == expected.keys()
        for name, report in reports.items():
            # 1e-12: float64 sums in another order.
            assert report == pytest.approx(expected[name], rel=1e-12, nan_ok=True), name


def test_bootstrap_weights_resample_with_replacement():
    weights = bootstrap_weights(50, 2000, seed=3)
    assert (weights.sum(1) == 50).all()
    # Each count is binomial(50, 1/50): mean 1, variance 0.98; 2,000 replicates give it to 1%.
    assert weights.var(dim=0).mean().item() == pytest.approx(0.98, rel=0.03)
    assert torch.equal(weights, bootstrap_weights(50, 2000, seed=3))
    assert not torch.equal(weights, bootstrap_weights(50, 2000, seed=4))


@cases
def test_replicates_equal_reports_on_the_resampled_set(case: Case):
    metric = case.metric()
    some = slice(None, 80)
    parts = slice(None, 30), slice(30, 80)
    samples = torch.cat([torch.as_tensor(metric.samples(*case.batch(part))) for part in parts])
    weights = torch.cat([torch.ones(1, 80).double(), bootstrap_weights(80, 5)])
    values = metric.resample(samples, weights)
    # A replicate of meshes keeps the regions and tails of the test set: only the first row agrees.
    for r, row in enumerate(weights[:1] if isinstance(metric, Mesh) else weights):
        chosen = np.repeat(np.arange(80), row.numpy().astype(int))
        expected = case.report(*(array[some][chosen] for array in case.arrays))
        found = {key: value[r].item() for key, value in values.items()}
        assert found == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize(("name", "key"), [("age", "gm"), ("depth", "log10")])
def test_replicates_without_an_infinite_error_are_finite(name: str, key: str):
    """The logarithm of an exact prediction's error, and of a depth of 0."""
    case = CASES[name]
    pred, *others = (array[:20].copy() for array in case.arrays)
    pred[0] = others[0][0] if name == "age" else 0.0
    weights = bootstrap_weights(20, 8)
    assert 0 < (weights[:, 0] == 0).sum() < 8
    values = case.metric().resample(case.metric().samples(pred, *others), weights)[key]
    for row, value in zip(weights, values, strict=True):
        chosen = np.repeat(np.arange(20), row.numpy().astype(int))
        expected = case.report(*(array[chosen] for array in (pred, *others)))[key]
        assert value.item() == pytest.approx(expected, **{**CLOSE, "nan_ok": False})


def test_replicates_of_tails_are_plain_means():
    rarity, error = 300 * torch.from_numpy(RNG.random((2, 90)))
    metric, weights = MeshMetrics(["mpvpe"]), bootstrap_weights(90, 3)
    values = metric.resample(metric.samples({"mpvpe": error}, rarity), weights)
    tail = rarity.argsort(descending=True)[:9]
    expected = (weights[:, tail] * error[tail]).sum(1) / weights[:, tail].sum(1)
    torch.testing.assert_close(values["bmpvpe_tail10"], expected, rtol=1e-10, atol=0)


def test_groups_without_samples_in_a_replicate_are_nan():
    metric = CASES["similarity"].metric()
    only_first = torch.eye(N)[:1]
    values = metric.resample(metric.samples(*CASES["similarity"].arrays), only_first)
    assert sum(values[f"mse_{shot}"].isnan().item() for shot in SHOTS) == 2
