"""Age figures from made-up runs."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from engine.benchmarks.age import Label, error_per_label, gains, predictions
from engine.tables.plots import save

TARGET = np.array([[20.0], [70.0]])


def write(folder: Path, *errors: float) -> Path:
    folder.mkdir()
    pred = TARGET + np.array(errors)[:, None]
    np.savez(folder / "predictions.npz", test_pred=pred, test_target=TARGET)
    return folder


def test_gains_are_bars_at_their_ages(tmp_path: Path):
    """Two seeds: errors of 1 and 3 years at age 20, of 2 and 2 at age 70."""
    folders = [write(tmp_path / "0", 1, 2), write(tmp_path / "1", 3, 2)]
    assert [column.tolist() for column in predictions(folders[0])] == [[21, 72], [20, 70]]
    assert error_per_label(folders, Label()).to_dict() == {20: 2.0, 70: 2.0}
    runs = {"Vanilla": [write(tmp_path / "2", 1, 6)], "GAI": folders}
    figure = gains(runs, "Vanilla", np.array([20.0, 20, 21]), TARGET, Label())
    bars = {round(b.get_x() + b.get_width() / 2): b.get_height() for b in figure.axes[0].patches}
    assert bars == {20: -1.0, 70: 4.0}


def test_a_histogram_is_empty_where_no_sample_is(tmp_path: Path):
    """Bins without samples used to take the height of their neighbours."""
    counts, edges = Label(step=0.5).histogram(np.array([1.0, 1.1, 2.5]))
    assert counts.tolist() == [2, 0, 0, 1]
    assert edges.tolist() == [0.75, 1.25, 1.75, 2.25, 2.75]
    runs = {row: [write(tmp_path / row, 1, 2)] for row in ("Vanilla", "GAI")}
    figure = gains(runs, "Vanilla", np.array([20.0, 20, 23]), TARGET, Label())
    (behind,) = figure.axes[1].patches
    assert behind.get_data().values.tolist() == [2, 0, 0, 1]


def test_saved_figures_are_reproducible(tmp_path: Path):
    def written(folder: Path) -> list[bytes]:
        figure = Figure()
        figure.subplots().plot([0, 1])
        return [path.read_bytes() for path in save({"line": figure}, folder, "a")]

    assert written(tmp_path / "1") == written(tmp_path / "2")
    assert {p.name for p in (tmp_path / "1").iterdir()} == {"a_line.png", "a_line.pdf"}
