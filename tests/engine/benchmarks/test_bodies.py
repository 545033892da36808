"""The task of IHMR: SPIN's terms against oracles, masks, and runs that must be stopped."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from datasets.ihmr import split_target
from engine.benchmarks.bodies.metrics import BodyMetrics
from engine.benchmarks.bodies.poses import PoseLoss
from engine.benchmarks.bodies.task import MeshRecovery
from engine.runs.run import composed, run
from engine.training import build
from losses import BMC, Batch, Flat, Gaussian, Subspace
from models.smpl import SMPL, project
from tests.engine.tiny_bodies import config


@pytest.fixture(scope="module")
def batch(bodies: Path) -> dict:
    cfg = config(bodies, bodies, "ihmr/spin")
    items = [build.dataset(cfg, "train", augment=False)[i] for i in range(16)]
    stack = {key: torch.stack([item[key] for item in items]) for key in ("input", "target")}
    return {**stack, "meta": {"index": torch.arange(16)}}


def task(bodies: Path, experiment: str, *overrides: str) -> MeshRecovery:
    cfg = config(bodies, bodies, f"ihmr/{experiment}", *overrides)
    torch.manual_seed(0)
    whole = build.task(cfg, build.dataset(cfg, "train").labels)
    whole.cached = False
    return whole  # pyright: ignore[reportReturnType]


def test_the_flat_pose_term_is_mse(bodies: Path, batch: dict):
    whole = task(bodies, "spin").eval()
    pred = whole.predict(batch)
    known = whole.known(split_target(batch["target"]))
    expected = (pred[known, :216] - batch["target"][known, :216]).square().mean()
    torch.testing.assert_close(whole.unweighted(pred, batch)["pose"], expected)
    assert known.sum() > 8


def test_the_official_preset_is_the_released_loss(bodies: Path, batch: dict):
    """[60 |p - t|^2 / s^2 + 5 logsumexp_j(-|p - t_j|^2 / 2 s^2)] / 216 * s^2, and no log s."""
    official = composed("train", ["experiment=ihmr/bmc", "preset=official"])
    assert official.task.scale.pose == 60
    changes = (
        f"loss.strength={official.loss.strength}",
        f"loss.likelihood.normalised={official.loss.likelihood.normalised}",
        *("choose=null", "loss.likelihood.sigma=0.9"),
    )
    whole = task(bodies, "bmc", *changes)
    p, t = whole.predict(batch)[:, :216].detach().double(), batch["target"][:, :216].double()
    p.requires_grad_()
    s = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    logits = -torch.cdist(p, t).square() / (2 * s**2)
    rows = 60 * (p - t).square().sum(1) / s**2 + 5 * torch.logsumexp(logits, 1)
    released = (rows / 216 * s.detach() ** 2).mean()
    made = 60 * whole.pose(p, t)
    # 1e-6: sigma is float32
    torch.testing.assert_close(made, released, rtol=1e-6, atol=1e-6)
    sigma = whole.loss.likelihood.sigma
    for ours, theirs in zip(
        torch.autograd.grad(made, [p, sigma]), torch.autograd.grad(released, [p, s]), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)


def test_fits_are_judged_with_their_own_shape_and_trained_with_a_plausible_one(
    bodies: Path, batch: dict
):
    """SPIN zeroes extreme shapes after it has judged the fit, not before."""
    whole, target = task(bodies, "spin"), batch["target"].clone()
    true = split_target(target)
    true["has_smpl"][:], true["has_fit"][:] = 0, 1
    true["shape"][:, 0] = 3.5
    joints = whole.body(true["pose"].unflatten(1, (24, 3, 3)), true["shape"])[1]
    seen = project(joints, torch.tensor([[0.8, 0.1, -0.2]]).expand(16, -1))
    true["keypoints"][:] = torch.cat([seen, torch.ones(16, 49, 1)], -1).flatten(1)
    assert whole.known(true).all()
    pred = torch.cat([target[:, :216], torch.zeros(16, 13)], 1)
    assert float(whole.unweighted(pred, {"target": target})["shape"]) == 0
    true["has_fit"][:], true["has_smpl"][:] = 0, 1  # what is true is not touched
    assert float(whole.unweighted(pred, {"target": target})["shape"]) > 1


def test_fits_count_where_they_reproject(bodies: Path, batch: dict):
    """A true pose seen by any camera has no error; another pose has one."""
    body, true = SMPL(bodies / "ihmr", joints_only=True), split_target(batch["target"])
    joints = body(true["pose"].unflatten(1, (24, 3, 3)), true["shape"])[1]
    seen = project(joints, torch.tensor([[0.8, 0.1, -0.2]]).expand(16, -1))
    keypoints = torch.cat([seen, torch.ones(16, 49, 1)], -1)
    # 0.5 pixels^2: float32 at a focal length of 5000 pixels
    terms = task(bodies, "spin").counting
    assert terms.fit_error(joints, keypoints.flatten(1)).max() < 0.5
    other = joints.roll(1, 0) * torch.tensor([2.0, 0.5, 1.0])
    assert terms.fit_error(other, keypoints.flatten(1)).min() > 100


def test_a_diverging_run_is_named(bodies: Path, batch: dict):
    whole = task(bodies, "bmc", "choose=null", "task.warmup=0")
    whole(batch)
    whole.end_epoch()
    whole.overshoot = 2.0
    whole.spread += torch.tensor([50.0, 10.0])
    with pytest.raises(FloatingPointError, match=r"overshoot: .* 5\.00 times.*strength"):
        whole.end_epoch()
    with torch.no_grad():
        whole.loss.likelihood.sigma.fill_(0.001)  # pyright: ignore[reportCallIssue]
    with pytest.raises(FloatingPointError, match=r"sigma collapsed to 0\.001, below"):
        whole.end_epoch()


def test_a_network_that_learns_poses_may_overshoot_at_first(bodies: Path):
    """Without a prior there is no strength to lower; the first epochs are not judged."""
    whole = task(bodies, "spin", "task.warmup=2", "task.overshoot=2")
    for _ in range(2):
        whole.spread += torch.tensor([50.0, 10.0])
        whole.end_epoch()
        assert not whole.spread.any()  # each epoch is judged on its own
    resumed = task(bodies, "spin", "task.warmup=2", "task.overshoot=2")
    resumed.load_state_dict(whole.state_dict())
    whole = resumed  # a run that goes on knows how many epochs are over
    whole.spread += torch.tensor([50.0, 10.0])
    with pytest.raises(FloatingPointError, match=r"5\.00 times.*Lower optim") as error:
        whole.end_epoch()
    assert "strength" not in str(error.value)


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
