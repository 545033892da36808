"""The synthetic benchmark as a user meets it: jobs that are not run twice, files, figures,
errors.
"""

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from engine import ROOT
from engine.benchmarks.synthetic import run_jobs, write
from engine.tables.plots import colour, save
from synthetic.benchmark import figures
from synthetic.benchmark.jobs import FIELDS, Job
from synthetic.benchmark.problems import NONLINEAR, TABLE
from synthetic.benchmark.program import Training
from tests import process

TINY = Training(2, "SGD", 1e-3, 1e-3, 0.9, 64, 64, 32, 1)


def jobs_of(folder: Path, methods=figures.NAMES) -> list[Job]:
    families = [tuple(p for p in TABLE if p.family == f) for f in ("normal", "exponential", "mvn")]
    return [
        Job(method, problems, (0,) if problems is NONLINEAR else (0, 1), TINY, str(folder))
        for problems in (*families, NONLINEAR)
        for method in methods
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> list[Job]:
    """Every job that the figures need, run in this process."""
    jobs = jobs_of(tmp_path_factory.mktemp("synthetic"))
    for job in jobs:
        job.run(lambda epoch: None)
    return jobs


def test_results_come_back_by_problem_and_seed(finished: list[Job]):
    result = finished[0].result()
    assert result["mse"].shape == (3, 2)
    assert result["weight"].shape == (3, 2, 1, 1)
    assert np.isfinite(result["mse"]).all()


def test_a_table_beside_the_nonlinear_figure_has_every_seed(finished: list[Job], tmp_path: Path):
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        cfg = compose("synthetic", [f"folder={tmp_path}", "figures=false"])
    written = write(cfg, finished, seconds=1.0)
    assert written["seeds"]["Vanilla"] == [(0, 0), (1, 1)]
    against = written["against"]["GAI (true noise)"]["Vanilla"]
    assert {cell["pairs"] for cell in against.values()} == {2}


def test_a_finished_job_is_not_run_again(finished: list[Job]):
    before = [job.path.stat().st_mtime_ns for job in finished]
    reports = []
    run_jobs(finished, 1, False, lambda job, epoch: reports.append((job, epoch)))
    assert [job.path.stat().st_mtime_ns for job in finished] == before
    assert all(epoch is None for _, epoch in reports)
    assert len(reports) == len(finished)


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "another array"])
def test_a_damaged_job_is_made_again(
    damage: str, finished: list[Job], monkeypatch: pytest.MonkeyPatch, capsys
):
    job = finished[0]
    whole, data = job.result(), job.path.read_bytes()
    if damage == "another array":
        np.savez(job.path, mse=np.zeros(3))
    else:
        left = {"empty": b"", "cut": data[: len(data) // 2], "text": b"no zip"}[damage]
        job.path.write_bytes(left)

    def here(tasks, workers, progress):
        return [task(lambda epoch: None) for task in tasks]

    monkeypatch.setattr("engine.benchmarks.synthetic.side_by_side", here)
    run_jobs([job], 1, False, lambda job, epoch: None)
    for name in FIELDS:
        np.testing.assert_array_equal(job.result()[name], whole[name])
    assert f"{job.name}: recomputed" in capsys.readouterr().err


@pytest.mark.usefixtures("forked_workers")
def test_jobs_run_in_processes_and_report(tmp_path: Path):
    jobs = jobs_of(tmp_path, ["Vanilla"])[:2]
    reports = []
    run_jobs(jobs, 2, False, lambda job, epoch: reports.append((job.name, epoch)))
    assert {name for name, epoch in reports if epoch is None} == {job.name for job in jobs}
    assert all(job.path.is_file() for job in jobs)
    assert list((tmp_path / "tensorboard").glob("*/events*"))


def test_a_changed_setting_is_another_job(finished: list[Job]):
    job = finished[0]
    changed = Job(job.method, job.problems, (0, 2), job.training, job.folder)
    assert changed.path != job.path


def test_figures_are_drawn_and_show_something(finished: list[Job], tmp_path: Path):
    plotted = figures.plot_all(finished, colour)
    assert set(plotted) == {"skews", "surfaces", "nonlinear", "seeds"}
    written = save(plotted, tmp_path, "synthetic")
    for path in written:
        assert path.stat().st_size > 5000
        if path.suffix == ".png":
            pixels = matplotlib.image.imread(path)[..., :3]
            assert (pixels < 0.9).any(-1).mean() > 0.01  # more than a hundredth is ink
            edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
            assert (edge > 0.95).all()  # nothing is cut off at the border


def script(*arguments: str) -> process.Done:
    return process.run(ROOT / "scripts/run_synthetic.py", *arguments)


def test_the_command_writes_table_and_prints_it(tmp_path: Path):
    done = script(
        "epochs=1",
        "seeds=2",
        "methods=[Vanilla,BMC]",
        "columns=[normal_high,mvn_low]",
        "workers=1",
        f"folder={tmp_path}",
    )
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "synthetic.json").read_text())
    assert set(table["rows"]) == {"Vanilla", "BMC"}
    assert set(table["rows"]["BMC"]) == {"normal_high", "mvn_low"}
    cell = table["rows"]["Vanilla"]["mvn_low"]
    assert cell["seeds"] == 2
    assert cell["paper"] == 2.570
    assert {"commit", "command", "machine", "seconds", "versions"} <= set(table["meta"])
    for suffix in ("md", "csv", "tex"):
        assert "BMC" in (tmp_path / f"synthetic.{suffix}").read_text()
    assert "paper 5.521" in done.stdout


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("nonsense=1", "nonsense"),
        ("columns=[normal_hihg]", "Unknown columns normal_hihg; choose from normal_high"),
        ("methods=[GIA]", "Unknown methods GIA; choose from Vanilla"),
        ("seeds=0", "seeds: expected"),
    ],
)
def test_wrong_settings_are_named(argument: str, message: str, tmp_path: Path):
    done = script(argument, f"folder={tmp_path}")
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
