"""Bad input: each message says what was expected, what came, and what to do."""

import numpy as np
import pytest
import torch

from metrics import AgeMetrics, DepthMetrics, MeshMetrics, age_report, depth_report, mesh_report

TRAIN = [30] * 50


@pytest.mark.parametrize(
    "shapes", [((4,), (5,)), ((4, 1), (4, 4)), ((2, 3), (3, 2)), ((6,), (2, 3))]
)
def test_shapes_that_disagree(shapes):
    pred, target = (torch.ones(shape) for shape in shapes)
    with pytest.raises(
        ValueError, match=r"pred and target must agree.*got \(.*\) and \(.*\). Give"
    ):
        age_report(pred, target, TRAIN)
    with pytest.raises(ValueError, match="pred and target must agree"):
        depth_report(pred, target)


def test_shapes_that_differ_by_axes_of_length_one_are_fine():
    rows, column = np.array([31.0, 28.0, 36.0]), torch.tensor([[30.0], [30.0], [30.0]])
    for pred, target in ((rows, column), (column, rows), (rows[None], column)):
        assert age_report(pred, target, TRAIN)["mae"] == 3.0


def test_read_only_arrays_are_fine():
    pred = np.array([31.0])
    pred.flags.writeable = False
    assert age_report(pred, pred, TRAIN)["mae"] == 0.0


def test_a_mask_of_another_shape():
    with pytest.raises(ValueError, match=r"mask and target must agree.*got \(3,\) and \(4,\)"):
        depth_report(torch.ones(4), torch.ones(4), mask=torch.ones(3))


@pytest.mark.parametrize("age", [-1.0, -0.5, 200.5, 1e6])
def test_ages_out_of_range(age):
    message = r"ages must lie in 0\.\.200 years; got .* \(1 of 2 outside\)\. Undo"
    with pytest.raises(ValueError, match=message):
        age_report([30.0, 30.0], [30.0, age], TRAIN)
    with pytest.raises(ValueError, match=message):
        AgeMetrics([30.0, age])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite(value):
    bad, good = torch.tensor([1.0, value, 2.0]), torch.ones(3)
    with pytest.raises(ValueError, match=r"pred must be finite; 1 of 3 values.*diverged"):
        depth_report(bad, good)
    with pytest.raises(ValueError, match="target must be finite"):
        age_report(good, bad, TRAIN)
    with pytest.raises(ValueError, match="train_labels must be finite"):
        age_report(good, good, bad)
    with pytest.raises(ValueError, match="mpvpe must be finite"):
        mesh_report({"mpvpe": bad}, good)
    with pytest.raises(ValueError, match="rarity must be finite"):
        mesh_report({"mpvpe": good}, bad)


@pytest.mark.parametrize("depth", [0.0, -1.0])
def test_depths_without_a_measurement(depth):
    with pytest.raises(ValueError, match=r"depths must be above 0 m; got .*mask=target > 0"):
        depth_report(torch.ones(2), torch.tensor([1.0, depth]))


def test_no_training_labels():
    with pytest.raises(ValueError, match=r"train_labels must hold the training ages.*got none"):
        age_report([30.0], [30.0], [])


def test_reports_over_nothing():
    nothing = torch.zeros(0)
    with pytest.raises(ValueError, match="at least one sample; got none"):
        age_report(nothing, nothing, TRAIN)
    with pytest.raises(ValueError, match="Check the split and the mask"):
        depth_report(torch.ones(2), torch.ones(2), mask=torch.zeros(2))
    with pytest.raises(ValueError, match="at least one sample"):
        mesh_report({"mpvpe": nothing}, nothing)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")  # torchmetrics warns, then we raise
@pytest.mark.parametrize("metric", [AgeMetrics(TRAIN), DepthMetrics(), MeshMetrics()])
def test_classes_that_saw_nothing(metric):
    with pytest.raises(ValueError, match="at least one sample"):
        metric.compute()


def test_mesh_errors_and_rarity_of_different_lengths():
    with pytest.raises(ValueError, match=r"mpvpe and rarity must agree.*\(3,\) and \(4,\)"):
        mesh_report({"mpvpe": torch.ones(3)}, torch.ones(4))


def test_mesh_errors_under_unknown_names():
    with pytest.raises(ValueError, match=r"must be given under \['mpvpe', .*got \['pve'\]"):
        MeshMetrics().update({"pve": torch.ones(3)}, torch.ones(3))
    with pytest.raises(ValueError, match="at least one name"):
        mesh_report({}, torch.ones(3))
