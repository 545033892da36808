"""The leaderboard: equal budgets, a choice by validation alone, ranks by hand, and resuming."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig
from scipy import stats

from engine.runs.run import composed
from engine.tables import leaderboard, posthoc
from engine.tables.leaderboard import cost, diagram, groups, ranks, sample
from engine.tables.table import DIVERGED, cell, render, write
from tests.engine import tiny

LOWER = {"a": {"better": "lower"}, "b": {"better": "lower"}}


def config(*words: str) -> DictConfig:
    return composed("leaderboard", ["settings=2", "seeds=2", "losses=[Plain,BMC]", *words])


def test_settings_are_log_uniform_and_shared_by_all_methods():
    ranges = {"lr": [1e-4, 1e-2], "sigma": [2.0, 32.0]}
    found = [sample(ranges, i) for i in range(400)]
    for key, (low, high) in ranges.items():
        values = [one[key] for one in found]
        assert low <= min(values) < max(values) <= high
        share = np.log(np.divide(values, low)) / math.log(high / low)
        assert stats.kstest(share, "uniform").pvalue > 0.01
    assert sample({"lr": ranges["lr"]}, 3)["lr"] == found[3]["lr"]


def test_the_setting_is_chosen_by_the_mean_over_seeds():
    values = [[3.0, 1.0], [DIVERGED, 0.0], [1.5, 1.5], [math.nan, math.nan]]
    for lower, expected in ((True, 2), (False, 0)):
        assert np.argmin([cost(cell(of_seeds), lower) for of_seeds in values]) == expected


def test_ranks_and_the_critical_difference():
    means = {"M": (1.0, 3.0), "N": (2.0, 2.0), "O": (2.0, None), "P": (4.0, 1.0)}
    rows = {
        row: {"a": cell([a]), "b": cell([DIVERGED if b is None else b])}
        for row, (a, b) in means.items()
    }
    rows["Q"] = {"a": cell([0.0])}  # not on every benchmark: no rank
    found = ranks(rows, LOWER)
    # a: 1, 2.5, 2.5, 4; b: 3, 2, 4, 1
    assert found["mean"] == {"M": 2.0, "N": 2.25, "P": 2.5, "O": 3.25}
    assert list(found["mean"]) == ["M", "N", "P", "O"]
    # Demsar (2006), Table 5: q = 2.569 for four methods at 5%
    assert found["critical"] == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 2)), rel=1e-3)
    higher = ranks(rows, {"a": {"better": "higher"}, "b": {"better": "lower"}})
    assert higher["mean"]["P"] == 1.0
    assert groups([1.0, 1.5, 3.0, 3.2, 9.0], 1.8) == [(0, 1), (1, 3)]
    content = {"rows": rows, "ranks": found, "benchmark": {"columns": LOWER}}
    shown = diagram(content).axes[0]
    assert [label.get_text() for label in shown.get_yticklabels()] == list(found["mean"])
    about = {"columns": {"a": {"title": "Ages", "unit": "years", "better": "lower"}}}
    shown = diagram({**content, "benchmark": about}).axes[0]  # of one benchmark, the errors
    assert (shown.get_xlabel(), len(shown.get_yticklabels())) == ("Ages (years)", 5)
    text = render({"rows": rows, "ranks": found})
    assert "| M | 2.000 |" in text


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, DictConfig]:
    """Runs that are finished as soon as they are started, with metrics from their settings."""
    ran: dict[str, DictConfig] = {}

    def result(cfg: DictConfig) -> dict:
        lr, weights = cfg.optim.optimizer.lr, [one.weight for one in cfg.regularizer.values()]
        val = abs(math.log(lr / 1e-3)) + 0.1 * cfg.seed + sum(weights)
        metrics = {"val/mse": val, "test/mse": 10 - val, "val/bmae": val, "test/bmae": 10 - val}
        return {"metrics": metrics, "folder": str(tmp_path)}

    monkeypatch.setattr(leaderboard, "run_all", lambda cfgs, *_: ran.update(cfgs))
    monkeypatch.setattr(leaderboard, "result", result)
    after = {"metrics": {"test/mse": 0.5, "test/bmae": 0.5}, "folder": str(tmp_path)}
    monkeypatch.setattr(posthoc, "balanced", lambda *_: after)
    return ran


def test_equal_budgets_and_no_choice_by_the_test_set(finished, tmp_path: Path):
    words = ("benchmarks=[stsb,faces_mini]", "regularizers=[srl,rnc]")
    content, replicates = leaderboard.compare(config(*words), [], print)
    assert all(len(of) == 2 for of in content["trials"]["stsb"].values())
    assert list(content["trials"]["stsb"]) == ["Plain", "Plain + srl", "BMC", "BMC + srl"]
    assert len(content["trials"]["faces_mini"]) == 6  # Rank-N-Contrast needs two views
    assert len(finished) == (4 + 6) * 2 * 2
    for methods in content["trials"].values():
        for trials in methods.values():
            (chosen,) = (one for one in trials if one["chosen"])
            assert np.mean(chosen["val"]) == min(np.mean(one["val"]) for one in trials)
            assert np.mean(chosen["test"]) == max(np.mean(one["test"]) for one in trials)
    assert {one.loss.likelihood.sigma for n, one in finished.items() if "stsb: BMC" in n} <= {
        one["settings"]["loss.likelihood.sigma"] for one in content["trials"]["stsb"]["BMC"]
    }
    first = list(content["rows"])[:2]
    assert sorted(first) == ["Plain + isotonic", "Plain + post-hoc"]
    assert "Plain + rnc" not in content["ranks"]["mean"]
    assert "Plain + rnc" in content["rows"]
    others = {row: list(of_row) for row, of_row in content["against"].items()}
    assert others["BMC + srl"] == ["Plain", "BMC"]  # with its own loss, too
    assert others["Plain + srl"] == ["Plain"]
    stored = write(content, tmp_path, "leaderboard", replicates)[3]
    assert json.loads(stored.read_text())["trials"] == content["trials"]
    assert "Mini faces, bMAE (years)" in render(content)


@pytest.mark.filterwarnings("ignore:.*held-out:UserWarning")
def test_an_interrupted_leaderboard_resumes(faces: Path, tmp_path: Path):
    cfg = config("benchmarks=[faces_mini]", "losses=[Plain]", "regularizers=[]", "trust=[tests]")
    cfg.known.faces_mini.heads = ["features=none", "select.metric=bmae"]
    small = [*tiny.tiny(faces, tmp_path), f"paths.outputs={tmp_path}"]
    events: list[str] = []
    first = cfg.copy()
    first.settings = 1
    leaderboard.compare(first, small, lambda event: events.append(str(event)))
    content, replicates = leaderboard.compare(cfg, small, lambda event: events.append(str(event)))
    ends = [event.rpartition(": ")[2].split()[0] for event in events]
    assert ends == ["running", "done"] * 2 + ["found"] * 2 + ["running", "done"] * 2
    assert list(content["seeds"]["Plain + isotonic"]) == [(0, 0), (0, 1)]
    assert replicates["Plain + post-hoc"]["faces_mini"].shape == (1000,)
    assert content["against"]["Plain + post-hoc"]["Plain"]["faces_mini"]["images"] is not None
