"""Numbers recorded from the public implementations, on the inputs recorded with them."""

import numpy as np
import pytest

from metrics import age_report, depth_report, mesh_report, pa_mpjpe
from tests.recorded import recorded

AGE_SHOTS = {"many": "many", "median": "medium", "low": "few"}
DEPTH_SHOTS = {"overall": "", "many": "_many", "medium": "_medium", "few": "_few"}
DEPTH_NAMES = {"MSE": "mse", "RMSE": "rmse", "MAE": "mae", "ABS_REL": "abs_rel", "LG10": "log10"}
DEPTH_NAMES |= {f"DELTA{k}": f"delta{k}" for k in (1, 2, 3)}


def test_age():
    public = recorded("age_metrics")
    expected = {key: public[key] for key in ("bmae", "bmse")}
    for shot, ours in AGE_SHOTS.items():
        expected[f"gm_{ours}"] = public[f"{shot}_gmean"]
        for name, error in (("mae", "l1"), ("mse", "mse")):
            expected[f"{name}_{ours}"] = public[f"{shot}_{error}"]
            expected[f"b{name}_{ours}"] = public[f"b_{shot}_{error}"]
    report = age_report(public["preds"], public["labels"], public["train_labels"])
    for key, value in expected.items():
        # 1e-12: both sides are float64; only the order of summation differs.
        assert report[key] == pytest.approx(float(value), rel=1e-12), key


@pytest.mark.parametrize("shot", DEPTH_SHOTS)
def test_depth(shot):
    public = recorded("depth_metrics")
    report = depth_report(public["pred"], public["depth"])
    for name, ours in DEPTH_NAMES.items():
        key = f"{ours}{DEPTH_SHOTS[shot]}"
        # 2e-6: the recorded side averages in float32, whose rounding is 6e-8 a step.
        assert report[key] == pytest.approx(float(public[f"{shot}_{name}"]), rel=2e-6), key
        balanced = float(public[f"b_{shot}_{name}"])
        assert report[f"b{key}"] == pytest.approx(balanced, rel=2e-6), key


def test_mesh():
    public = recorded("mesh_metrics")
    report = mesh_report({"mpvpe": public["error"]}, public["distance"])
    # 1e-12: float64 on both sides, another order of summation.
    assert report["bmpvpe"] == pytest.approx(float(public["b_all"]), rel=1e-12)
    assert report["bmpvpe_tail10"] == pytest.approx(float(public["tail10"]), rel=1e-12)
    assert report["bmpvpe_tail5"] == pytest.approx(float(public["tail5"]), rel=1e-12)
    # 1e-10: float64 SVDs of well-conditioned 3 x 3 matrices by two libraries; some are reflected.
    found = pa_mpjpe(public["pred"], public["gt"])
    np.testing.assert_allclose(found, public["pa_mpjpe"], rtol=1e-10)
