"""Bad input: each message states what was expected, what was given, and what to do."""

import numpy as np
import pytest
import torch

from metrics import (
    AgeMetrics,
    DepthMetrics,
    MeshMetrics,
    SimilarityMetrics,
    age_report,
    balanced_report,
    depth_report,
    mesh_report,
    similarity_report,
)

TRAIN = [3] * 50
ONE, BAD, NONE = torch.ones(3), torch.tensor([1.0, torch.nan, 2.0]), torch.zeros(0)


def test_axes_of_length_one_and_read_only_arrays_are_accepted():
    rows, column = np.array([31.0, 28.0, 36.0]), torch.tensor([[30.0], [30.0], [30.0]])
    rows.flags.writeable = False
    for pred, target in ((rows, column), (column, rows), (rows[None], column)):
        assert age_report(pred, target, TRAIN)["mae"] == 3.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: depth_report(BAD, ONE), r"pred must be finite; 1 of 3 values.*diverged"),
        (lambda: age_report(ONE, BAD, TRAIN), "target must be finite"),
        (lambda: age_report([30.0] * 2, [30.0, -0.5], TRAIN), r"0\.\.200 years; got -0.5 \(1 of 2"),
        (lambda: AgeMetrics([30.0, 200.5]), r"0\.\.200 years; got 200.5 \(1 of 2 .*Undo"),
        *(
            (
                lambda a=a, b=b: depth_report(torch.ones(a), torch.ones(b)),
                "pred and target must agree",
            )
            for a, b in (((4,), (5,)), ((4, 1), (4, 4)), ((2, 3), (3, 2)), ((6,), (2, 3)))
        ),
        (lambda: mesh_report({"mpvpe": ONE}, BAD), "rarity must be finite"),
        (lambda: depth_report(torch.ones(4), torch.ones(4), mask=ONE), r"\(3,\) and \(4,\)"),
        (lambda: depth_report(ONE, ONE - 1), r"above 0 m; got 0 .*mask=target > 0"),
        (lambda: age_report(ONE, ONE, []), "train_labels must hold the training ages.*got none"),
        (lambda: depth_report(ONE, ONE, mask=0 * ONE), "check the split and the mask"),
        (lambda: mesh_report({"mpvpe": NONE}, NONE), "at least one sample"),
        (lambda: similarity_report(NONE, NONE, TRAIN), "at least one sample"),
        (lambda: similarity_report([0.0, 1.0], [-1.0, 6.0], TRAIN), "0..5; got -1 to 6"),
        (lambda: mesh_report({"mpvpe": ONE}, torch.ones(4)), r"mpvpe and rarity .*\(3,\) and"),
        (lambda: MeshMetrics().update({"pve": ONE}, ONE), r"under \['mpvpe', .*got \['pve'\]"),
        (lambda: mesh_report({}, ONE), "at least one name"),
        (
            lambda: DepthMetrics().update(torch.ones(2, 3), torch.ones(1, 3)),
            "as many images; got 2, 1",
        ),
        (
            lambda: balanced_report(torch.ones(4, 2), torch.ones(4, 2), [0.0, 1.0]),
            r"pred must be \(N,\) or \(N, 1\), one number per sample, got \(4, 2\)",
        ),
        (lambda: age_report(ONE, ONE, torch.ones(4, 2)), r"train_labels must be \(N,\) or"),
        (lambda: balanced_report([1.0], [1.0], []), "train_labels must hold labels"),
        (lambda: balanced_report([1.0], [1.0], [3.0, 3.0]), "train_labels must differ"),
        (
            lambda: balanced_report([1.0], [1.0], [1.0, 2.0], 0),
            "ranges must be a whole number >= 1",
        ),
        (lambda: balanced_report([1.0], [1.0], [1.0, 2.0], 2.5), "whole number >= 1, got 2.5"),
        (lambda: balanced_report([1.0], [1.0], None), "got None"),
    ],
)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")  # torchmetrics warns, then we raise
def test_classes_without_batches():
    for metric in (AgeMetrics(TRAIN), DepthMetrics(), MeshMetrics(), SimilarityMetrics(TRAIN)):
        with pytest.raises(ValueError, match="at least one sample"):
            metric.compute()
