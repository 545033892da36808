"""Numbers recorded from the public implementations, on the inputs recorded with them."""

from pathlib import Path

import numpy as np
import pytest

from metrics import age_report, depth_report, mesh_report, pa_mpjpe

DATA = Path(__file__).parents[1] / "data"


def recorded(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as archive:
        return dict(archive)


AGE, DEPTH, MESH = (recorded(f"{kind}_metrics") for kind in ("age", "depth", "mesh"))
AGE_SHOTS = {"many": "many", "median": "medium", "low": "few"}
DEPTH_SHOTS = {"overall": "", "many": "_many", "medium": "_medium", "few": "_few"}
DEPTH_NAMES = {"MSE": "mse", "RMSE": "rmse", "MAE": "mae", "ABS_REL": "abs_rel", "LG10": "log10"}
DEPTH_NAMES |= {f"DELTA{k}": f"delta{k}" for k in (1, 2, 3)}


@pytest.fixture(scope="module")
def age() -> dict[str, float]:
    return age_report(AGE["preds"], AGE["labels"], AGE["train_labels"])


@pytest.fixture(scope="module")
def depth() -> dict[str, float]:
    return depth_report(DEPTH["pred"], DEPTH["depth"])


# 1e-12: both sides are float64; only the order of summation differs.
@pytest.mark.parametrize("shot", AGE_SHOTS)
@pytest.mark.parametrize(("public", "ours"), [("l1", "mae"), ("mse", "mse"), ("gmean", "gm")])
def test_age_shots(age, shot, public, ours):
    key = f"{ours}_{AGE_SHOTS[shot]}"
    assert age[key] == pytest.approx(float(AGE[f"{shot}_{public}"]), rel=1e-12)
    if ours != "gm":
        assert age[f"b{key}"] == pytest.approx(float(AGE[f"b_{shot}_{public}"]), rel=1e-12)


@pytest.mark.parametrize("key", ["bmae", "bmse"])
def test_age_balanced_over_all(age, key):
    assert age[key] == pytest.approx(float(AGE[key]), rel=1e-12)


# 2e-6: the recorded side averages in float32, whose rounding is 6e-8 a step.
@pytest.mark.parametrize("shot", DEPTH_SHOTS)
@pytest.mark.parametrize("public", DEPTH_NAMES)
def test_depth(depth, shot, public):
    key = f"{DEPTH_NAMES[public]}{DEPTH_SHOTS[shot]}"
    assert depth[key] == pytest.approx(float(DEPTH[f"{shot}_{public}"]), rel=2e-6)
    assert depth[f"b{key}"] == pytest.approx(float(DEPTH[f"b_{shot}_{public}"]), rel=2e-6)


def test_mesh_regions_and_tails():
    report = mesh_report({"mpvpe": MESH["error"]}, MESH["distance"])
    # 1e-12: float64 on both sides, another order of summation.
    assert report["bmpvpe"] == pytest.approx(float(MESH["b_all"]), rel=1e-12)
    assert report["bmpvpe_tail10"] == pytest.approx(float(MESH["tail10"]), rel=1e-12)
    assert report["bmpvpe_tail5"] == pytest.approx(float(MESH["tail5"]), rel=1e-12)


def test_pa_mpjpe_reflected_samples_included():
    # 1e-10: float64 SVDs of well-conditioned 3 x 3 matrices by two libraries.
    np.testing.assert_allclose(pa_mpjpe(MESH["pred"], MESH["gt"]), MESH["pa_mpjpe"], rtol=1e-10)
