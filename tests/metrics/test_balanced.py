"""Balanced errors of any label, against loops; the scorer; and predictions in a CSV file."""

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import GridSearchCV

from metrics import (
    AgeMetrics,
    age_report,
    balanced_report,
    balanced_scorer,
    evaluate_csv,
    similarity_report,
)
from metrics.balanced import relevance
from metrics.report import bootstrap_weights
from tests.metrics.test_report import mean, spread_over

RNG = np.random.default_rng(0)
TRAIN = np.concatenate([RNG.normal(10, 2, 900), RNG.uniform(15, 60, 200)])
TARGET = RNG.uniform(5, 70, 150)  # beyond the training labels, too
PRED = TARGET + RNG.normal(0, 3, 150) - 0.1 * TARGET


def by_loops(pred, target, train, ranges) -> dict[str, float]:
    """Range by range and sample by sample."""
    low, width = min(train), (max(train) - min(train)) / ranges

    def range_of(label: float) -> int:
        return min(max(int((label - low) // width), 0), ranges - 1)

    def shot(place: int) -> str:
        held = sum(range_of(y) == place for y in train)
        return "many" if held > 100 else "few" if held < 20 else "medium"

    shots, report = [shot(place) for place in range(ranges)], {}
    for name, power in (("mae", 1), ("mse", 2)):
        places = [range_of(y) for y in target]
        errors = [abs(p - y) ** power for p, y in zip(pred, target, strict=True)]
        items = [(k, shots[k], error) for k, error in zip(places, errors, strict=True)]
        spread_over(report, name, items, mean)
    for key in [key for key in report if "mse" in key]:
        report[key.replace("mse", "rmse")] = math.sqrt(report.pop(key))
    steps = 2000  # SERA is an integral over the relevance t of the errors of labels above t
    phi = [slow_relevance(y, train) for y in target]
    squared = [(p - y) ** 2 for p, y in zip(pred, target, strict=True)]
    above = [
        sum(e for e, r in zip(squared, phi, strict=True) if r >= (step + 0.5) / steps)
        for step in range(steps)
    ]
    return report | {"sera": mean(above) / len(target)}


def slow_relevance(label: float, train) -> float:
    """0 at the median, 1 from the last label within 1.5 interquartile ranges of the box on."""
    low, median, high = np.percentile(train, [25, 50, 75])
    inside = [y for y in train if low - 1.5 * (high - low) <= y <= high + 1.5 * (high - low)]
    sides = {-1: min(train) < min(inside), 1: max(train) > max(inside)}
    side, end = (-1, min(inside)) if label < median else (1, max(inside))
    if any(sides.values()) and not sides[side]:
        return 0.0
    share = min(max((label - median) / (end - median), 0.0), 1.0)
    return 3 * share**2 - 2 * share**3


@pytest.mark.parametrize("ranges", [1, 10, 25])
def test_report_against_loops(ranges: int):
    report = balanced_report(PRED[:, None], TARGET[:, None], TRAIN, ranges)
    expected = by_loops(PRED, TARGET, TRAIN, ranges)
    assert set(report) == set(expected)
    sera, looped = report.pop("sera"), expected.pop("sera")
    assert report == pytest.approx(expected, rel=1e-10, nan_ok=True)  # float64 sums
    assert sera == pytest.approx(looped, rel=2e-3)  # 2,000 steps of the integral


def test_relevance_by_hand():
    train = np.array([0.0, 1, 2, 3, 4, 100])
    # The box reaches from 1.25 to 3.75 and its whiskers to 0 and 4: outliers only above.
    assert relevance(np.array([0.0, 2.5, 4.0, 100.0]), train).tolist() == [0, 0, 1, 1]
    assert relevance(np.array([3.25]), train) == pytest.approx(0.5)
    assert balanced_report([1.0, 1, 90], [0.0, 0, 100], train)["sera"] == pytest.approx(100 / 3)
    both = np.array([-50.0, 0, 1, 2, 3, 4, 60])
    labels = np.linspace(-60, 70, 27)
    expected = [slow_relevance(label, both) for label in labels]
    assert relevance(labels, both) == pytest.approx(expected)


def test_balanced_error_does_not_depend_on_the_test_distribution():
    """Doubling the frequent samples changes the plain error and leaves the balanced one."""
    four_ranges = TRAIN.min() + 0.4 * np.ptp(TRAIN)
    near = four_ranges > TARGET
    pred, target = np.append(PRED, PRED[near]), np.append(TARGET, TARGET[near])
    once, twice = balanced_report(PRED, TARGET, TRAIN), balanced_report(pred, target, TRAIN)
    assert twice["bmae"] == pytest.approx(once["bmae"], rel=1e-12)
    assert twice["mae"] != pytest.approx(once["mae"], rel=1e-3)


def test_scorer_in_a_grid_search():
    y = RNG.permutation(np.concatenate([RNG.normal(0, 1, 400), RNG.uniform(5, 40, 60)]))
    search = GridSearchCV(
        DummyRegressor(strategy="constant"),
        {"constant": [float(np.mean(y)), 18.0]},
        scoring={name: balanced_scorer(name, y) for name in ("bmae", "rmse")},
        refit="bmae",
        cv=2,
    ).fit(np.zeros((len(y), 1)), y)
    assert search.best_params_ == {"constant": 18.0}  # the middle of the range, not the mean
    assert search.cv_results_["mean_test_rmse"].argmax() == 0
    fitted = DummyRegressor(strategy="constant", constant=3.0).fit(y[:, None], y)
    scorer = pickle.loads(pickle.dumps(balanced_scorer("sera", y)))  # for parallel searches
    assert scorer(fitted, y[:, None], y) == pytest.approx(
        -balanced_report(np.full(len(y), 3.0), y, y)["sera"]
    )
    with pytest.raises(ValueError, match="Unknown metric 'mse'; choose from mae"):
        balanced_scorer("mse")


def write(path: Path, **columns) -> Path:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv_has_the_figures_and_intervals_of_our_tables(tmp_path: Path):
    ages = RNG.integers(0, 90, 200)
    first, second = ages + RNG.normal(0, 6, 200), ages * 0.7 + 10 + RNG.normal(0, 1, 200)
    train = RNG.integers(0, 90, 4000) ** 2 // 90
    path = write(tmp_path / "p.csv", name=["x"] * 200, target=ages, a=first, b=second)
    labels = write(tmp_path / "train.csv", age=train)
    found = evaluate_csv(path, pred=["a", "b"], train=labels, kind="age")
    assert found.values["a"] == pytest.approx(age_report(first, ages, train), nan_ok=True)
    metrics, weights = AgeMetrics(train), bootstrap_weights(200, 1000)
    both = [metrics.resample(metrics.samples(p, ages), weights) for p in (first, second)]
    quantiles = [0.025, 0.975]
    ends = np.quantile(both[0]["bmae"], quantiles)
    assert found.intervals["a"]["bmae"] == pytest.approx(ends, rel=1e-9)
    ends = np.quantile(both[1]["bmae"] - both[0]["bmae"], quantiles)
    assert found.differences["b"]["bmae"] == pytest.approx(ends, rel=1e-9)
    text = str(found)
    assert all(part in text for part in ("bmae", "200 samples", "4,000 training labels"))


def test_csv_without_training_labels(tmp_path: Path):
    path = write(tmp_path / "p.csv", target=TARGET, pred=PRED, sample=np.arange(len(TARGET)))
    found = evaluate_csv(path, replicates=200)
    assert [*found.values] == ["pred"]
    assert found.values["pred"] == pytest.approx(balanced_report(PRED, TARGET, TARGET), nan_ok=True)
    low, high = found.intervals["pred"]["bmae"]
    assert low < found.values["pred"]["bmae"] < high
    assert "the labels of this file" in str(found)
    score = TARGET / 14  # similarities, up to 5
    path = write(tmp_path / "s.csv", label=score, mine=PRED, name=["x"] * len(score))
    found = evaluate_csv(path, target="label", kind="similarity", replicates=50)
    expected = similarity_report(PRED, score, score)
    assert found.values["mine"] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "y"}, "unknown column 'y'; choose from target, pred, words"),
        ({"pred": "target"}, "expected predictions next to the label 'target'"),
        ({"pred": "words"}, "expected numbers in column 'words'"),
        ({"kind": "depth"}, "Unknown kind 'depth'; choose from any, age, similarity"),
        ({"replicates": 0}, "replicates must be 1 or more"),
        ({"train": "none.csv"}, r"none\.csv: no such file"),
        ({"train": "."}, r"expected a CSV file, got a folder"),
    ],
)
def test_csv_errors(options: dict, message: str, tmp_path: Path):
    path = write(tmp_path / "p.csv", target=TARGET, pred=PRED, words=["w"] * len(TARGET))
    with pytest.raises((ValueError, OSError), match=message):
        evaluate_csv(path, **options)


def test_a_column_with_a_missing_prediction_is_not_skipped(tmp_path: Path):
    some = ["", *PRED[1:]]
    path = write(tmp_path / "p.csv", target=TARGET, mine=some, other=PRED, empty=[""] * len(PRED))
    with pytest.raises(ValueError, match="1 predictions in column 'mine' are missing; fill them"):
        evaluate_csv(path)
    assert list(evaluate_csv(path, pred="other").values) == ["other"]
