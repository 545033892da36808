"""What is said about labels is true of labels whose distribution is known."""

from pathlib import Path

import numpy as np
import pytest
import torch

from losses import diagnose, leverage
from losses.diagnosis.estimates import _mixture, held_out

RNG = np.random.default_rng(0)
NORMAL = 5 + 0.5 * RNG.normal(size=4000)
WAITS = RNG.exponential(2.0, size=4000)


def test_normal_labels_are_stretched_as_the_formula_says():
    found = diagnose(NORMAL, residuals=np.array([-0.5, 0.5]))
    assert found.sigma == 0.5
    v = NORMAL.var()
    for region in found.regions:
        assert region.stretch == pytest.approx((v + 0.25) / v, rel=0.02)  # a fitted mixture's
    # least squares reaches v sigma^2 / (v + sigma^2), balanced predictions sigma^2
    assert found.rmse[0] == pytest.approx(np.sqrt(v * 0.25 / (v + 0.25)), rel=0.03)  # 20,000 draws
    assert found.rmse[1] == pytest.approx(0.5, rel=0.03)
    assert found.balanced_rmse[1] < found.balanced_rmse[0]


def test_a_one_sided_tail_is_moved_rather_than_stretched():
    """Exponential labels of scale b: log p_train falls by 1 / b, so predictions move by
    sigma^2 / b.
    """
    found = diagnose(WAITS, residuals=np.full(9, 0.8))
    inner = found.regions[1]
    assert inner.shift == pytest.approx(0.64 / 2, rel=0.25)  # counts of some hundred labels
    assert found.tail_range > 0.5
    assert found.tail_mass < 0.2


def test_the_prior_that_made_the_labels_fits_best():
    two = np.concatenate([NORMAL, 9 + 0.3 * RNG.normal(size=1000)])
    fits = diagnose(two).fits
    assert fits["mixture of 2"] > fits["mixture of 1"] + 0.5
    entropy = 0.5 * np.log(2 * np.pi * np.e * 0.25)
    assert diagnose(NORMAL).fits["mixture of 1"] == pytest.approx(-entropy, abs=0.05)


def test_labels_that_repeat_do_not_reward_spikes():
    ages = np.round(RNG.normal(35, 12, size=3000))
    entropy = 0.5 * np.log(2 * np.pi * np.e * 144)
    assert held_out(_mixture(8), ages) == pytest.approx(-entropy, abs=0.1)


def test_the_model_of_the_residuals_is_described():
    pred = NORMAL.mean() + 0.25 * (NORMAL - NORMAL.mean())
    found = diagnose(NORMAL, NORMAL - pred)
    assert found.pull == pytest.approx(0.75)
    assert "misses 75% of a label's distance to the mean" in str(found)


@pytest.mark.parametrize(
    ("labels", "residuals", "words"),
    [
        (np.linspace(0, 1, 500), None, "nearly uniform"),
        (NORMAL, np.full(5, 0.02), "hardly moves a prediction"),
        (NORMAL, np.full(5, 2.0), "Temper it"),
        (NORMAL, np.full(5, 0.4), "Balancing can help"),
    ],
)
def test_advice(labels, residuals, words: str):
    assert words in str(diagnose(labels, residuals))


@pytest.mark.parametrize(("factor", "shift"), [(1e-9, 0.0), (1e9, 0.0), (1.0, 1e9)])
def test_neither_unit_nor_origin_matter(factor: float, shift: float):
    small, other = diagnose(WAITS[:300]), diagnose(factor * WAITS[:300] + shift)
    assert other.advice == small.advice
    assert other.imbalance == small.imbalance
    assert other.sigma == pytest.approx(factor * small.sigma, rel=1e-3)
    # labels at 1e9 have seven digits after the point
    assert other.rmse == pytest.approx([factor * value for value in small.rmse], rel=1e-3)
    assert other.stretch == pytest.approx(small.stretch, rel=1e-3)


def test_a_figure_is_drawn(tmp_path: Path):
    found = diagnose(WAITS)
    found.plot(tmp_path / "labels.png")
    assert (tmp_path / "labels.png").stat().st_size > 10_000
    assert "labels=" not in repr(found)  # thousands of numbers


@pytest.mark.parametrize(
    ("labels", "residuals", "message"),
    [
        (NORMAL, [0.0, 0.0], "reach 0e.00 standard deviations of the labels"),
        (NORMAL, [1.0], "at least two residuals, got 1"),
        (NORMAL, [1.0, np.nan], "residuals must be finite"),
        (NORMAL, [1e12, -1e12], "deviations of the labels; give label minus prediction"),
        ([1.0] * 40 + [np.nan], None, "infinite, first in row 40. Drop these rows"),
        ([7.0] * 50, None, "all 50 labels are 7: there is nothing to balance"),
        (["a", "2"] * 30, None, "must be real numbers: could not convert string to float: .*'a'"),
        ([1.0], None, "expected at least 30 labels, got 1"),
        (5.0, None, "expected at least 30 labels, got 1"),
        (range(12), None, "expected at least 30 labels, got 12; fewer do not show the tails"),
        ([], None, "expected at least 30 labels, got 0"),
        (np.zeros((40, 3)), None, "expected one label dimension, got 3; diagnose each column"),
        ([[1, 2], [3]], None, "must be real numbers: .* inhomogeneous shape"),
        (np.arange(40).astype("datetime64[D]"), None, "must be real numbers: got datetime64"),
        (np.arange(40) + 1j, None, "must be real numbers: got complex128"),
        (np.ma.masked_less(np.arange(40.0), 3), None, "3 are missing or infinite, first in row 0"),
        (1e300 * np.arange(40.0), None, r"reach 4e\+301, keep them below 1e\+37"),
    ],
)
def test_bad_input_is_refused(labels, residuals, message: str):
    with pytest.raises(ValueError, match=message):
        diagnose(labels, residuals)


@pytest.mark.parametrize(("shrunk", "helps"), [(0.4, True), (1.0, False)])
def test_leverage_is_what_a_monotone_map_gains(shrunk: float, helps: bool):
    """Predictions that are shrunk can be stretched; those that confuse rare labels cannot."""
    rng = np.random.default_rng(0)
    labels = rng.normal(size=4000)
    y = rng.uniform(-3, 3, 1000)
    found = diagnose(labels, shrunk * y + 0.1 * rng.normal(size=1000), y).leverage
    assert found.helps == helps
    assert found.interval[0] <= found.gain <= found.interval[1]
    assert "Leverage: " in str(found)
    if helps:
        assert found.gain > 0.5
        assert 0 < found.theorem <= found.gain + 0.05
    else:
        assert abs(found.gain) < 0.1


def test_leverage_in_several_dimensions_is_a_stretch():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(600, 3))
    y -= y.mean(0)
    found = leverage(y, 0.5 * y, y)
    assert found.after == pytest.approx(0, abs=1e-9)
    assert leverage(y, y + rng.normal(size=y.shape), y).gain < 0.3
    with pytest.raises(ValueError, match="at least 20 held-out"):
        leverage(y, y[:9], y[:9])


def test_leverage_of_whole_numbers_lists_and_tensors():
    rng = np.random.default_rng(0)
    half = np.round(rng.normal(0, 30, (100, 2)))
    y = np.concatenate([half, -half])
    pred = np.round(y / 5)
    expected = leverage(y, pred, y)
    assert expected.gain > 0.9  # a stretch by five
    for given in (lambda a: a.astype(int), np.ndarray.tolist, torch.from_numpy):
        assert leverage(*(given(a) for a in (y, pred, y))) == expected
    column, x = y[:, :1], y[:, 0] + rng.normal(0, 20, 200)
    assert leverage(column, x[:, None], column) == leverage(y[:, 0], x, y[:, 0])
    with pytest.raises(ValueError, match="some are NaN"):
        leverage(y, np.full_like(y, np.nan), y)


def test_predictions_and_targets_belong_together():
    y = np.random.default_rng(0).normal(size=200)
    with pytest.raises(ValueError, match="target needs predictions"):
        diagnose(y, target=y)
    with pytest.raises(ValueError, match="predictions equal the labels"):
        diagnose(y, y[:100], y[:100])
