"""Post-hoc rows: no training, only the predictions of another row."""

import sys
from pathlib import Path

import numpy as np
import pytest

from datasets.io.arrays import read_npz
from engine.runs.folder import finished
from engine.runs.run import composed, run
from engine.tables.posthoc import add_rows, balanced
from losses import Rebalancer
from metrics import age_report
from scripts import rebalance
from tests.engine import tiny

FEW = pytest.mark.filterwarnings("ignore:.*held-out:UserWarning")


@FEW
@pytest.mark.parametrize(
    "settings", [{"criterion": "bmae"}, {"method": "isotonic"}, {"sigma": 5.0}]
)
def test_a_row_is_the_run_with_balanced_predictions(
    faces: Path, tmp_path: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
):
    for module in ("engine.tables.posthoc", "losses.diagnosis.leverage"):
        monkeypatch.setattr(sys.modules[module], "FEWEST", 4)
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/vanilla")
    plain = run(cfg)
    wanted, done = {"Vanilla": [cfg]}, {"Vanilla": [plain], "Balanced": []}
    swept = {key: settings[key] for key in settings if key == "sigma"}  # one value of a sweep
    others = {key: settings[key] for key in settings if key != "sigma"}
    row = {"posthoc": {"of": "Vanilla", **others}, "changes": swept}
    rows = {"Vanilla": {}, "Balanced": row}
    add_rows(rows, wanted, done, ["tests"])
    (found,) = done["Balanced"]
    assert wanted["Balanced"] == [cfg]
    stored = read_npz(Path(plain["folder"]) / "predictions.npz", advice="")
    labels = np.loadtxt(faces / "imdb_wiki" / "imdb_wiki.csv", str, delimiter=",", skiprows=1)
    labels = labels[labels[:, -1] == "train", 0].astype(float)
    r = Rebalancer(labels, **settings).fit(stored["val_pred"], stored["val_target"])
    expected = age_report(r(stored["test_pred"]), stored["test_target"], labels)
    for key in ("bmae", "mae", "bmae_few"):
        assert found["metrics"][f"test/{key}"] == pytest.approx(
            expected[key], rel=1e-5, nan_ok=True
        )
    replicates = read_npz(Path(found["folder"]) / "replicates.npz", advice="")
    assert replicates["bmae"].shape == (cfg.log.replicates,)
    assert np.median(replicates["mae"]) == pytest.approx(expected["mae"], rel=0.5)
    foreseen = found["leverage"]
    assert foreseen["interval"][0] <= foreseen["interval"][1] <= 1
    assert foreseen["after"] == pytest.approx(foreseen["before"] * (1 - foreseen["gain"]))
    assert balanced(Path(plain["folder"]), settings, ["tests"]) == finished(Path(found["folder"]))


def test_unknown_rows_are_refused():
    with pytest.raises(ValueError, match="balances 'Nope', which is not a row"):
        add_rows({"Mine": {"posthoc": {"of": "Nope"}}}, {}, {}, None)


def test_pixels_are_balanced_inside_evaluation(rooms: Path, tmp_path: Path):
    cfg = tiny.depth_config(rooms, tmp_path, "nyud2/vanilla")
    plain = run(cfg)
    (same, moved) = (
        balanced(Path(plain["folder"]), {"sigma": sigma}, ["tests"])["metrics"]
        for sigma in (0.0, 1.0)
    )
    for key in ("rmse", "rmse_few", "delta1"):
        assert same[f"test/{key}"] == pytest.approx(plain["metrics"][f"test/{key}"], rel=1e-4)
    assert moved["test/rmse"] != pytest.approx(same["test/rmse"], rel=1e-3)
    with pytest.raises(ValueError, match="no validation predictions to fit on; give sigma"):
        balanced(Path(plain["folder"]), {}, ["tests"])


@FEW
def test_the_script_prints_the_front(
    faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    plain = run(tiny.config(faces, tmp_path, "imdb_wiki/vanilla"))
    figure = tmp_path / "front.png"
    words = [f"run={plain['folder']}", "trust=[tests]", "strengths=[0,1]", "sigma=5"]
    rebalance.main(composed("rebalance", [*words, f"figure={figure}"]))
    header, first = capsys.readouterr().out.splitlines()[1:3]
    assert header.split() == ["strength", "bmae", "bmae_few", "mae"]
    assert float(first.split()[1]) == pytest.approx(plain["metrics"]["test/bmae"], abs=1e-3)
    assert figure.stat().st_size > 5_000


@FEW
def test_a_protocol_keeps_its_shots_and_errors(faces: Path, tmp_path: Path):
    """With sigma 0 the predictions, and so all metrics, are those of the run."""
    cfg = tiny.config(faces, tmp_path, "imdb_wiki/vanilla", "protocol=interpolation")
    plain = run(cfg)
    same = balanced(Path(plain["folder"]), {"sigma": 0.0}, ["tests"])["metrics"]
    test = {k: v for k, v in plain["metrics"].items() if k.startswith("test/")}
    assert same.keys() == test.keys()
    known = [key for key, value in test.items() if value is not None]  # None: an empty shot
    assert [same[key] for key in known] == pytest.approx([test[key] for key in known], rel=1e-5)


def test_the_script_names_what_is_missing(faces: Path, tmp_path: Path):
    plain = run(tiny.config(faces, tmp_path, "imdb_wiki/vanilla", "log.predictions=false"))
    words = [f"run={plain['folder']}", "trust=[tests]", "sigma=5", "figure=null"]
    with pytest.raises(ValueError, match=r"has no predictions\.npz"):
        rebalance.main(composed("rebalance", words))
    with pytest.raises(ValueError, match="metrics: unknown metric 'foo'"):
        rebalance.main(composed("rebalance", [*words, "metrics=[foo]"]))
