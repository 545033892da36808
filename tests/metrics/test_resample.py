"""Draws of the test set against reports on the drawn samples themselves."""

import numpy as np
import pytest
import torch

from metrics import AgeMetrics, DepthMetrics, MeshMetrics, age_report, depth_report, mesh_report
from metrics.report import bootstrap_weights as draws

CLOSE = {"rel": 1e-10, "nan_ok": True}  # float64 sums in another order


def drawn(weights: torch.Tensor) -> torch.Tensor:
    """The samples of one draw, each as often as it occurs."""
    return torch.repeat_interleave(torch.arange(len(weights)), weights.long())


def test_weights_are_draws_with_replacement_and_the_same_for_every_model():
    weights = draws(50, 2000, seed=3)
    assert (weights.sum(1) == 50).all()
    # Each count is binomial(50, 1/50): mean 1, variance 0.98; 2,000 draws see it to 1%.
    assert weights.var(dim=0).mean().item() == pytest.approx(0.98, rel=0.03)
    assert torch.equal(weights, draws(50, 2000, seed=3))
    assert not torch.equal(weights, draws(50, 2000, seed=4))


def test_ages_on_a_draw_are_the_report_of_the_drawn_images():
    rng = np.random.default_rng(0)
    train = rng.integers(20, 40, 900)
    target = torch.from_numpy(rng.integers(15, 60, 80)).double()
    pred = target + torch.from_numpy(rng.normal(0, 5, 80))
    metric = AgeMetrics(train)
    weights = torch.cat([torch.ones(1, 80).double(), draws(80, 5)])
    parts = slice(None, 30), slice(30, None)
    samples = torch.cat([metric.samples(pred[part, None], target[part, None]) for part in parts])
    values = metric.resample(samples, weights)
    for r, row in enumerate(weights):
        expected = age_report(pred[drawn(row)], target[drawn(row)], train)
        assert set(values) == set(expected)
        assert {key: value[r].item() for key, value in values.items()} == pytest.approx(
            expected, **CLOSE
        )


def test_depth_on_a_draw_is_the_report_of_the_drawn_frames():
    g = torch.Generator().manual_seed(0)
    target = (0.7 + 9 * torch.rand(6, 40, generator=g, dtype=torch.float64)).round(decimals=3)
    pred = target + 0.5 * torch.randn(6, 40, generator=g, dtype=torch.float64)
    pred = pred.clamp(min=0.1)
    mask = torch.rand(6, 40, generator=g) < 0.8
    metric = DepthMetrics()
    values = metric.resample(metric.samples(pred, target, mask), draws(6, 4))
    for r, row in enumerate(draws(6, 4)):
        some = drawn(row)
        expected = depth_report(pred[some], target[some], mask[some])
        assert {key: value[r].item() for key, value in values.items()} == pytest.approx(
            expected, **CLOSE
        )


def test_meshes_on_the_test_set_itself_are_its_report_and_tails_are_plain_means():
    g = torch.Generator().manual_seed(0)
    rarity, error = 300 * torch.rand(2, 90, generator=g, dtype=torch.float64)
    metric = MeshMetrics(["mpvpe"])
    weights = torch.cat([torch.ones(1, 90).double(), draws(90, 3)])
    values = metric.resample(metric.samples({"mpvpe": error}, rarity), weights)
    whole = {key: value[0].item() for key, value in values.items()}
    assert whole == pytest.approx(mesh_report({"mpvpe": error}, rarity), **CLOSE)
    tail = rarity.argsort(descending=True)[:9]
    for r, row in enumerate(weights):
        expected = (row[tail] * error[tail]).sum() / row[tail].sum()
        assert values["bmpvpe_tail10"][r].item() == pytest.approx(expected.item(), rel=1e-10)
