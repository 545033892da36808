"""From labels to a loss, and from a loss to a head and an optimiser."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.training import build, schedule
from tests.engine.tiny import TinyNet, config

LABELS = np.repeat(np.arange(20.0, 61.0), 3)[:, None]


def task(faces: Path, tmp_path: Path, experiment: str, *overrides: str):
    return build.task(config(faces, tmp_path, experiment, *overrides), LABELS)


def test_prior_and_head_are_fitted_to_the_labels(faces: Path, tmp_path: Path):
    bins = task(faces, tmp_path, "imdb_wiki/bni").loss.prior
    assert bins.centers.tolist() == list(range(20, 61))
    np.testing.assert_allclose(bins.weights, 1 / 41, rtol=1e-6)
    gai = task(faces, tmp_path, "imdb_wiki/gai")
    mean = float(gai.loss.prior.weights @ gai.loss.prior.means[:, 0])
    assert mean == pytest.approx(LABELS.mean(), rel=1e-3)
    assert gai.model.linear.out_features == 1
    histogram = task(faces, tmp_path, "imdb_wiki/histogram")
    assert histogram.model.linear.out_features == 41  # one bin for each age that has labels
    labels = np.array([[0.0], [30.0], [186.0]])
    limited = build.label_histogram(labels, 1.0, 1.5, "median", 0, 120)
    edges = [*histogram.loss.likelihood.edges[[0, -1]], *limited.edges[[0, -1]]]
    assert edges == [19.5, 60.5, -0.5, 120.5]


def test_weights_have_mean_one_and_follow_the_sample(faces: Path, tmp_path: Path):
    labels = np.array([[30.0]] * 90 + [[70.0]] * 10)
    cfg = config(faces, tmp_path, "imdb_wiki/rrt")
    weights = build.task(cfg, labels).weights
    assert weights.shape == (100,)
    assert float(weights.mean()) == pytest.approx(1)
    assert float(weights[-1] / weights[0]) == pytest.approx(9)


def test_sigma_has_its_own_rate_which_is_not_decayed(faces: Path, tmp_path: Path):
    steps = ("optim=adam_steps", "optim.schedule.milestones=[1]", "optim.loss_lr=0.5")
    cfg = config(faces, tmp_path, "imdb_wiki/gai", *steps)
    whole = build.task(cfg, LABELS)
    optimizer = build.optimizer(cfg, whole)
    scheduler = build.scheduler(cfg, optimizer, steps=4)
    sigma = whole.loss.likelihood.sigma
    assert [id(p) for p in optimizer.param_groups[1]["params"]] == [id(sigma)]
    before = optimizer.param_groups[0]["lr"]
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(before / 10)
    assert optimizer.param_groups[1]["lr"] == 0.5


def test_schedules():
    assert schedule.constant(3, 10) == 1
    rates = [schedule.steps(epoch, 90, [60, 80], 0.1) for epoch in (0, 59.9, 60, 79.9, 80)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert schedule.cosine(0, 10) == 1
    assert schedule.cosine(5, 10) == pytest.approx(0.5)
    assert schedule.cosine(10, 10) == pytest.approx(0)
    assert schedule.cosine(1, 10, warmup=2) == pytest.approx(0.5)


@pytest.mark.parametrize("warm", [True, False])
def test_a_warm_start_keeps_the_head_of_stage_one(warm: bool, tmp_path: Path):
    from engine.runs import checkpoint

    torch.manual_seed(0)
    first, second, path = TinyNet(), TinyNet(), tmp_path / "best.pt"
    state = {f"model.{key}": value for key, value in first.state_dict().items()}
    checkpoint.write(path, {"task": state})
    build.read_backbone(second, path, warm=warm)
    assert torch.equal(second.conv.weight, first.conv.weight)
    assert torch.equal(second.linear.weight, first.linear.weight) == warm


def test_half_precision_on_a_cpu_is_not_replaced(faces: Path, tmp_path: Path):
    """Fabric would train in bf16-mixed, and the run would be recorded as 16-mixed."""
    cfg = config(faces, tmp_path, "imdb_wiki/vanilla", "trainer.precision=16-mixed")
    with (
        pytest.warns(UserWarning, match="not supported on CPU"),
        pytest.raises(ValueError, match="needs a GPU; use bf16-mixed"),
    ):
        build.make_fabric(cfg)


def test_a_histogram_of_one_label_is_refused():
    with pytest.raises(ValueError, match=r"at least two bins of 1; all lie in 25 to 25"):
        build.label_histogram(np.full((3, 1), 25.0), 1.0, 1.5, "median", 0, 120)
