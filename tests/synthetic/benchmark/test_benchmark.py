"""The synthetic benchmark end to end: jobs that resume, table, figures, errors."""

import dataclasses
import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from omegaconf import DictConfig

from engine.benchmarks import synthetic
from engine.benchmarks.synthetic import make_jobs, reproduce, run_jobs, write
from engine.runs.run import composed
from engine.tables.plots import colour, save
from synthetic.benchmark import figures
from synthetic.benchmark.jobs import Job
from synthetic.benchmark.problems import NONLINEAR, TABLE
from synthetic.benchmark.program import Training

TINY = Training(2, "SGD", 1e-3, 1e-3, 0.9, 64, 64, 32, 1)


def jobs_in(folder: Path, methods=figures.NAMES) -> list[Job]:
    return [
        Job(method, problems, (0,) if problems is NONLINEAR else (0, 1), TINY, str(folder))
        for problems in (TABLE[:3], TABLE[3:6], TABLE[6:], NONLINEAR)
        for method in methods
    ]


def ignore(*_) -> None:
    pass


def config(folder: Path, *overrides: str) -> DictConfig:
    return composed("synthetic", [f"folder={folder}", *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> list[Job]:
    """Every job that the figures need."""
    jobs = jobs_in(tmp_path_factory.mktemp("synthetic"))
    for job in jobs:
        job.run(ignore)
    return jobs


def test_a_table_has_every_seed(finished: list[Job], tmp_path: Path):
    """Though the jobs of the nonlinear figure have one."""
    result = finished[0].result()  # by problem and seed
    assert result["mse"].shape == (3, 2)
    assert result["weight"].shape == (3, 2, 1, 1)
    assert np.isfinite(result["mse"]).all()
    written = write(config(tmp_path, "figures=false"), finished, seconds=1.0)
    assert written["seeds"]["Vanilla"] == [(0, 0), (1, 1)]
    against = written["against"]["GAI (true noise)"]["Vanilla"]
    assert {cell["pairs"] for cell in against.values()} == {2}
    assert set(written["extras"]["Vanilla + post-hoc"]) == {p.name for p in TABLE}


def test_balancing_after_training_undoes_the_shrinkage(monkeypatch: pytest.MonkeyPatch):
    """Least squares halves the slope of labels with variance 1 and noise 1."""
    problem, training = TABLE[2], dataclasses.replace(TINY, samples=1024, held_out=1024)
    line = {"weight": np.full((1, 2, 1, 1), 0.5), "bias": np.full((1, 2, 1), 2.5)}
    monkeypatch.setattr(Job, "result", lambda _: {"mse": np.zeros((1, 2)), **line})
    errors = Job("Vanilla", (problem,), (0, 1), training, "").rebalanced()
    assert (errors < 0.01 * problem.least_squares_mse()).all()  # the rest: a fitted mixture


def test_a_finished_job_is_not_rerun(finished: list[Job]):
    before = [job.path.stat().st_mtime_ns for job in finished]
    reports = []
    run_jobs(finished, 1, False, lambda job, epoch: reports.append(epoch))
    assert [job.path.stat().st_mtime_ns for job in finished] == before
    assert reports == [None] * len(finished)


def test_a_damaged_job_is_named(tmp_path: Path):
    job = jobs_in(tmp_path)[0]
    job.path.parent.mkdir()
    job.path.write_bytes(b"no zip")
    with pytest.raises(ValueError, match=r"normal-Vanilla.*Remove it and run the command again"):
        job.result()


@pytest.mark.usefixtures("forked_workers")
def test_jobs_run_in_processes_and_report(tmp_path: Path):
    jobs, reports = jobs_in(tmp_path, ["Vanilla"])[:2], []
    run_jobs(jobs, 2, False, lambda job, epoch: reports.append((job.name, epoch)))
    assert {name for name, epoch in reports if epoch is None} == {job.name for job in jobs}
    assert all(job.path.is_file() for job in jobs)
    assert list((tmp_path / "tensorboard").glob("*/events*"))


def test_figures_show_something(finished: list[Job], tmp_path: Path):
    plotted = figures.plot_all(finished, colour)
    assert set(plotted) == {"skews", "surfaces", "nonlinear", "seeds"}
    for path in save(plotted, tmp_path, "synthetic"):
        assert path.stat().st_size > 5000
        if path.suffix == ".png":
            pixels = matplotlib.image.imread(path)[..., :3]
            assert (pixels < 0.9).any(-1).mean() > 0.01  # more than a hundredth is ink
            edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
            assert (edge > 0.95).all()  # nothing is cut off at the border


def test_the_table_is_written_and_printed(tmp_path: Path, monkeypatch, capsys):
    def in_this_process(tasks, workers, progress):
        for i, task in enumerate(tasks):
            task(ignore)
            progress(i, None)

    monkeypatch.setattr(synthetic, "side_by_side", in_this_process)
    few = ("methods=[Vanilla,BMC]", "columns=[normal_high,mvn_low]", "epochs=1", "seeds=2")
    reproduce(config(tmp_path, *few))
    table = json.loads((tmp_path / "synthetic.json").read_text())
    assert set(table["rows"]) == {"Vanilla", "BMC"}
    assert set(table["rows"]["BMC"]) == {"normal_high", "mvn_low"}
    cell = table["rows"]["Vanilla"]["mvn_low"]
    assert (cell["seeds"], cell["paper"]) == (2, 2.570)
    assert {"commit", "command", "machine", "seconds", "versions"} <= set(table["meta"])
    for suffix in ("md", "csv", "tex"):
        assert "BMC" in (tmp_path / f"synthetic.{suffix}").read_text()
    assert "paper 5.521" in capsys.readouterr().out


WRONG = {
    "columns=[normal_hihg]": "columns: unknown normal_hihg; choose from normal_high",
    "methods=[GIA]": "methods: unknown GIA; choose from Vanilla",
    "columns=[]": "Nothing to do",
}


@pytest.mark.parametrize("setting", WRONG)
def test_wrong_settings_are_named(setting: str, tmp_path: Path):
    with pytest.raises(ValueError, match=WRONG[setting]):
        make_jobs(config(tmp_path, setting))


def test_a_changed_setting_is_another_job(tmp_path: Path):
    first, second, third = (make_jobs(config(tmp_path, f"seeds={n}"))[0].path for n in (2, 3, 2))
    assert first == third != second
