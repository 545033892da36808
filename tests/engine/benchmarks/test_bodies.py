"""The objective of IHMR: SPIN's terms against oracles, masks, and runs that must be stopped."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from datasets.ihmr import split_target
from engine import build
from engine.benchmarks.bodies.metrics import BodyMetrics
from engine.benchmarks.bodies.poses import PoseLoss
from engine.benchmarks.bodies.task import MeshRecovery, fit_error, joint_error, keypoint_error
from engine.run import run
from losses import BMC, Batch, Flat, Gaussian, Subspace
from models.smpl import SMPL, project
from tests.engine.tiny_bodies import config


@pytest.fixture(scope="module")
def batch(bodies: Path) -> dict:
    cfg = config(bodies, bodies, "ihmr/spin")
    items = [build.dataset(cfg, "train", augment=False)[i] for i in range(16)]
    stack = {key: torch.stack([item[key] for item in items]) for key in ("input", "target")}
    return {**stack, "meta": {"index": torch.arange(16)}}


def objective(bodies: Path, experiment: str, *overrides: str) -> MeshRecovery:
    cfg = config(bodies, bodies, f"ihmr/{experiment}", *overrides)
    torch.manual_seed(0)
    whole = build.objective(cfg, build.dataset(cfg, "train").labels)
    whole.cached = False
    return whole  # pyright: ignore[reportReturnType]


def test_the_flat_pose_term_is_mse(bodies: Path, batch: dict):
    whole = objective(bodies, "spin").eval()
    pred = whole.predict(batch)
    known = whole.known(split_target(batch["target"]))
    expected = (pred[known, :216] - batch["target"][known, :216]).square().mean()
    torch.testing.assert_close(whole.parts(pred, batch["target"])["pose"], expected)
    assert known.sum() > 8


def test_the_official_strength_is_the_released_loss(bodies: Path, batch: dict):
    """[60 |p - t|^2 / s^2 + 5 logsumexp_j(-|p - t_j|^2 / 2 s^2)] / 216 * s^2, up to a constant."""
    changes = ("loss.strength=0.0416666667", "choose=null", "loss.likelihood.sigma=0.9")
    whole = objective(bodies, "bmc", *changes)
    p, t = whole.predict(batch)[:, :216].detach().double(), batch["target"][:, :216].double()
    p.requires_grad_()
    logits = -torch.cdist(p, t).square() / (2 * 0.81)
    rows = 60 * (p - t).square().sum(1) / 0.81 + 5 * torch.logsumexp(logits, 1)
    released = (rows / 216 * 0.81).mean()
    (expected,) = torch.autograd.grad(released, p)
    (made,) = torch.autograd.grad(60 * whole.pose(p, t), p)
    # 1e-6: sigma and the strength are float32
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6)


def test_keypoints_and_joints_against_loops():
    rng = np.random.default_rng(0)
    pred, true = rng.normal(size=(3, 49, 2)), rng.normal(size=(3, 49, 3))
    true[..., 2] = rng.random((3, 49))
    total = sum(
        true[n, j, 2] * ((pred[n, j] - true[n, j, :2]) ** 2).sum()
        for n in range(3)
        for j in range(25, 49)
    )
    made = keypoint_error(torch.tensor(pred), torch.tensor(true).flatten(1))
    assert float(made) == pytest.approx(total / (3 * 49 * 2))

    points, joints = rng.normal(size=(3, 49, 3)), rng.normal(size=(3, 24, 4))
    has, total = np.array([1, 0, 1]), 0.0
    for n in (0, 2):
        mine, theirs = points[n, 25:], joints[n, :, :3]
        mine, theirs = mine - (mine[2] + mine[3]) / 2, theirs - (theirs[2] + theirs[3]) / 2
        total += (joints[n, :, 3:] * (mine - theirs) ** 2).sum()
    made = joint_error(
        torch.tensor(points), torch.tensor(joints).flatten(1), torch.tensor(has)[:, None]
    )
    assert float(made) == pytest.approx(total / (2 * 24 * 3))


def test_fits_count_where_they_reproject(bodies: Path, batch: dict):
    """A true pose seen by any camera has no error; another pose has one."""
    body, true = SMPL(bodies / "ihmr", joints_only=True), split_target(batch["target"])
    joints = body(true["pose"].unflatten(1, (24, 3, 3)), true["shape"])[1]
    seen = project(joints, torch.tensor([[0.8, 0.1, -0.2]]).expand(16, -1))
    keypoints = torch.cat([seen, torch.ones(16, 49, 1)], -1)
    # 0.5 pixels^2: float32 at a focal length of 5000 pixels
    assert fit_error(joints, keypoints.flatten(1)).max() < 0.5
    other = joints.roll(1, 0) * torch.tensor([2.0, 0.5, 1.0])
    assert fit_error(other, keypoints.flatten(1)).min() > 100


def test_a_diverging_run_is_named(bodies: Path, batch: dict):
    whole = objective(bodies, "bmc", "choose=null")
    whole(batch)
    whole.end_epoch()
    whole.overshoot = 2.0
    whole.spread += torch.tensor([50.0, 10.0])
    with pytest.raises(FloatingPointError, match=r"overshoot: they stray 5\.00 times.*strength"):
        whole.end_epoch()
    with torch.no_grad():
        whole.loss.likelihood.sigma.fill_(0.001)  # pyright: ignore[reportCallIssue]
    with pytest.raises(FloatingPointError, match=r"sigma collapsed to 0\.001, below"):
        whole.end_epoch()


def test_a_diverged_strength_is_left_out(bodies: Path, tmp_path: Path, monkeypatch):
    def end_epoch(self: MeshRecovery) -> None:
        if self.model.frozen and self.loss.strength == 1:
            raise FloatingPointError("too strong")

    monkeypatch.setattr(MeshRecovery, "end_epoch", end_epoch)
    cfg = config(bodies, tmp_path, "ihmr/bmc")
    cfg.sweep.among = [1.0, 0.25]
    done = run(cfg)
    assert done["chosen"] == {"loss.strength": 0.25}
    assert done["diverged"] == {"1.0": "too strong"}
    cfg.sweep.among = [1.0]
    with pytest.raises(FloatingPointError, match="every value diverged"):
        run(cfg)


def test_cached_targets_belong_to_their_view(bodies: Path, tmp_path: Path):
    """A mirrored picture's features are stored with the mirrored pose."""
    run(config(bodies, tmp_path, "ihmr/spin_rt", "features.views=2"))
    (path,) = tmp_path.glob("features/*/train.h5")
    with h5py.File(path) as file:
        targets = np.array(file["target"])
    assert targets.shape[0] == 2
    assert not np.allclose(targets[0, :, :216], targets[1, :, :216])


def test_metrics_of_the_truth_are_zero_and_do_not_depend_on_chunks(bodies: Path):
    cfg = config(bodies, bodies, "ihmr/spin")
    test = build.dataset(cfg, "test")
    target = torch.stack([test[i]["target"] for i in range(16)])
    perfect = torch.cat([target[:, :226], torch.zeros(16, 3)], 1)
    reports = []
    for chunk in (5, 64):
        metrics = BodyMetrics(bodies / "ihmr", cfg.metrics.mean, "gt", chunk)
        metrics.update(perfect, target)
        reports.append(metrics.compute())
    for key in ("mpvpe", "bmpjpe", "bpa_mpjpe_tail10"):
        assert reports[0][key] == pytest.approx(reports[1][key], abs=1e-3)  # float32, millimetres
    assert reports[0]["mpvpe"] == pytest.approx(0, abs=1e-3)
    # the joints of a prediction are the neutral body's, so the gender's share is left
    assert 1 < reports[0]["mpjpe"] < 40
    neutral = BodyMetrics(bodies / "ihmr", cfg.metrics.mean, "neutral", 64)
    neutral.update(perfect, target)
    assert 1 < neutral.compute()["mpvpe"] < 90


def test_errors_against_loops(bodies: Path):
    cfg = config(bodies, bodies, "ihmr/spin")
    test = build.dataset(cfg, "test")
    target = torch.stack([test[i]["target"] for i in range(3)])
    pred = torch.cat([target.roll(1, 0)[:, :226], torch.zeros(3, 3)], 1)
    metrics = BodyMetrics(bodies / "ihmr", cfg.metrics.mean, "neutral", 64)
    errors, rarity = metrics.errors(pred, target)
    table = np.load(bodies / "ihmr" / "J_regressor_h36m.npy")
    kept = [6, 5, 4, 1, 2, 3, 16, 15, 14, 11, 12, 13, 8, 10]
    mean = metrics.mean_mesh[0].numpy()
    for n in range(3):
        gender = ["male", "female"][int(target[n, -1])]
        meshes = []
        for name, row in ((gender, target[n]), ("neutral", pred[n])):
            body = SMPL(bodies / "ihmr", name)
            pose = row[:216].reshape(1, 24, 3, 3)
            meshes.append(body.vertices(pose, row[None, 216:226])[0].numpy())
        true, made = meshes
        assert float(errors["mpvpe"][n]) == pytest.approx(
            1000 * np.linalg.norm(made - true, axis=1).mean(), rel=1e-4
        )
        assert float(rarity[n]) == pytest.approx(
            1000 * np.linalg.norm(true - mean, axis=1).mean(), rel=1e-4
        )
        joints = [table @ mesh for mesh in meshes]
        joints = [(one - one[0])[kept] for one in joints]
        assert float(errors["mpjpe"][n]) == pytest.approx(
            1000 * np.linalg.norm(joints[0] - joints[1], axis=1).mean(), rel=1e-4
        )


def test_meshes_are_in_tensorboard(bodies: Path, tmp_path: Path):
    done = run(config(bodies, tmp_path, "ihmr/spin", "log.figures=true"))
    tags = EventAccumulator(done["folder"]).Reload().summary_metadata
    assert {"pred_VERTEX", "target_VERTEX", "pred_FACE"} <= set(tags)


def test_a_released_checkpoint_is_taken_as_it_is(bodies: Path, tmp_path: Path):
    done = run(config(bodies, tmp_path, "ihmr/spin", "trainer.epochs=0"))
    assert done["metrics"]["test/mpvpe"] > 0


def test_a_balanced_subspace_has_a_noise_of_its_own():
    """Theorem 1 along its directions, the plain loss along all others."""
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 2))[0]
    loss = PoseLoss(nn.Identity(), prior=Subspace(Batch(), basis), likelihood=Gaussian(0.5))  # pyright: ignore
    pred, target = torch.randn(2, 5, 6)
    leading = BMC(0.5)(pred @ basis, target @ basis)
    missed = pred - target
    rest = (missed - missed @ basis @ basis.mT).square().sum(1).mean()
    torch.testing.assert_close(loss(pred, target), leading + rest)

    plain = PoseLoss(nn.Identity(), prior=Subspace(Flat(), basis), likelihood=Gaussian(0.5))  # pyright: ignore
    torch.testing.assert_close(plain(pred, target), missed.square().sum(1).mean())
