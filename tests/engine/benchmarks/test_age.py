"""Age figures from made-up runs."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from engine.benchmarks import age
from engine.benchmarks.age import Label, error_per_label, gain_per_label, predictions
from engine.tables.plots import save


def test_error_per_label_is_the_mean_over_seeds(tmp_path: Path):
    """Two seeds: errors of 1 and 3 years at age 20, of 2 and 2 at age 70."""
    folders = [tmp_path / "0", tmp_path / "1"]
    target = np.array([[20.0], [70.0]])
    for folder, errors in zip(folders, [(1.0, 2.0), (3.0, 2.0)], strict=True):
        folder.mkdir()
        pred = target + np.array(errors)[:, None]
        np.savez(folder / "predictions.npz", test_pred=pred, test_target=target)
    assert [column.tolist() for column in predictions(folders[0])] == [[21, 72], [20, 70]]
    assert error_per_label(folders, Label()).to_dict() == {20: 2.0, 70: 2.0}


def test_gains_are_bars_at_their_ages():
    ax = Figure().subplots()
    gain_per_label("GAI", pd.Series({20: -1.0, 70: 4.0}), np.array([20.0, 20, 21]), Label(), ax)
    bars = {round(b.get_x() + b.get_width() / 2): b.get_height() for b in ax.patches}
    assert bars == {20: -1.0, 70: 4.0}


def test_saved_figures_are_reproducible(tmp_path: Path):
    def written(folder: Path) -> list[bytes]:
        figure = Figure()
        figure.subplots().plot([0, 1])
        return [path.read_bytes() for path in save({"line": figure}, folder, "a")]

    assert written(tmp_path / "1") == written(tmp_path / "2")
    assert {p.name for p in (tmp_path / "1").iterdir()} == {"a_line.png", "a_line.pdf"}


def test_a_table_of_one_row_has_no_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = np.array([[20.0], [70.0]])
    np.savez(tmp_path / "predictions.npz", test_pred=target + 1, test_target=target)
    monkeypatch.setattr(age, "read_config", lambda *_: None)
    monkeypatch.setattr(age.build, "dataset", lambda *_: SimpleNamespace(labels=target))
    cfg = OmegaConf.create({"name": "t", "benchmark": {"highlight": {"baseline": ["Vanilla"]}}})
    written = age.plot(cfg, {"Vanilla": [tmp_path]}, tmp_path)
    assert {path.stem for path in written} == {"t_labels", "t_predictions"}
