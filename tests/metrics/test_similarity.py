"""The metrics of STS-B-DIR, against scipy and a count by hand."""

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, rankdata, spearmanr

from metrics import SimilarityMetrics, similarity_report
from metrics.groups import similarity_bins, similarity_shots
from metrics.similarity import _ranks

RNG = np.random.default_rng(0)
TRAIN = np.concatenate([np.full(101, 0.05), np.full(30, 2.25), np.full(29, 4.95)])
TARGET = RNG.choice([0.05, 2.25, 4.95, 3.35], size=200) + 0.02 * RNG.random(200)
PRED = TARGET + RNG.normal(size=200)


def test_shots_are_counted_in_bins_of_a_tenth():
    shots = similarity_shots(TRAIN)
    assert shots[0] == 0  # more than 100 pairs
    assert shots[22] == 1  # 30 to 100
    assert shots[49] == 2  # fewer
    assert shots[33] == 2  # none at all


def test_bins_follow_float32():
    scores = torch.tensor([0.0, 0.1, 4.99, 5.0])
    assert similarity_bins(scores).tolist() == [0, 1, 49, 49]
    # 0.6 in float32 is above the edge 0.6 in float64; both are rounded before they are compared
    tenths = torch.arange(51, dtype=torch.float64) / 10
    edges = np.histogram_bin_edges(np.array([], np.float32), 50, range=(0.0, 5.0))
    expected = [min(49, int(np.sum(edges <= np.float32(x))) - 1) for x in tenths.numpy()]
    assert similarity_bins(tenths).tolist() == expected


def test_report_agrees_with_scipy_in_every_group():
    report = similarity_report(PRED, TARGET, TRAIN)
    groups = {
        "": np.ones(200, bool),
        "_many": TARGET < 1,
        "_medium": np.abs(TARGET - 2.25) < 0.1,
        "_few": (np.abs(TARGET - 3.35) < 0.1) | (TARGET > 4.9),
    }
    for suffix, rows in groups.items():
        p, t = PRED[rows], TARGET[rows]
        assert report[f"mse{suffix}"] == pytest.approx(np.mean((p - t) ** 2))
        assert report[f"pearson{suffix}"] == pytest.approx(pearsonr(p, t)[0])
        assert report[f"spearman{suffix}"] == pytest.approx(spearmanr(p, t)[0])


def test_batches_add_up_and_draws_are_reports():
    metric = SimilarityMetrics(TRAIN)
    for rows in np.split(np.arange(200), [50, 50, 120]):  # one is empty
        metric.update(torch.tensor(PRED[rows])[:, None], torch.tensor(TARGET[rows])[:, None])
    assert metric.compute() == pytest.approx(similarity_report(PRED, TARGET, TRAIN))
    samples = metric.samples(torch.tensor(PRED)[:, None], torch.tensor(TARGET)[:, None])
    weights = torch.ones(2, 200)
    weights[1, :100] = 2
    drawn = metric.resample(samples, weights)
    twice = np.r_[np.arange(100), np.arange(200)]
    for draw, rows in enumerate((np.arange(200), twice)):
        expected = similarity_report(PRED[rows], TARGET[rows], TRAIN)
        assert {key: float(values[draw]) for key, values in drawn.items()} == pytest.approx(
            expected
        )
    weights[0] = torch.tensor(TARGET < 1)  # no pair of the others is drawn
    assert metric.resample(samples, weights)["mse_few"][0].isnan()


def test_ranks_of_draws_share_ties():
    values, times = np.array([2.0, 1.0, 2.0, 3.0]), np.array([1, 2, 3, 0])
    found = _ranks(torch.tensor(values), torch.tensor(times)[None].double())[0]
    expected = rankdata(np.repeat(values, times))
    assert np.repeat(found.numpy(), times).tolist() == expected.tolist()


def test_scores_outside_of_the_range_are_refused():
    with pytest.raises(ValueError, match=r"similarities must lie in 0..5; got -1 to 6"):
        similarity_report([0.0, 1.0], [-1.0, 6.0], TRAIN)
    with pytest.raises(ValueError, match="at least one sample"):
        similarity_report(np.zeros(0), np.zeros(0), TRAIN)
