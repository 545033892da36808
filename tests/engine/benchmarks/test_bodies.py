"""The IHMR task: loss terms and metrics against oracles, masks, divergence checks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import roma
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from datasets.ihmr import split_target
from engine.benchmarks.bodies.metrics import BodyMetrics
from engine.benchmarks.bodies.poses import PoseLoss, Stretch
from engine.benchmarks.bodies.task import MeshRecovery
from engine.runs.run import composed, run
from engine.training import build
from losses import BMC, Batch, Flat, Gaussian, Subspace
from models.smpl import SMPL, mean_rotations, project
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
    made: Any = build.task(cfg, build.dataset(cfg, "train").labels)
    made.cached = False
    return made


@pytest.fixture(scope="module")
def target(bodies: Path) -> torch.Tensor:
    test = build.dataset(config(bodies, bodies, "ihmr/spin"), "test")
    return torch.stack([test[i]["target"] for i in range(16)])


def rotations(rows: torch.Tensor) -> torch.Tensor:
    return rows[:, :216].unflatten(1, (24, 3, 3))


def seen(joints: torch.Tensor) -> torch.Tensor:
    """Keypoints (N, 147) of joints (N, 49, 3) for some camera, with confidence 1."""
    points = project(joints, torch.tensor([[0.8, 0.1, -0.2]]).expand(len(joints), -1))
    return torch.cat([points, torch.ones(len(joints), 49, 1)], -1).flatten(1)


def test_the_flat_pose_term_is_mse(bodies: Path, batch: dict):
    spin = task(bodies, "spin").eval()
    pred = spin.predict(batch)
    known = spin.known(split_target(batch["target"]))
    expected = (pred[known, :216] - batch["target"][known, :216]).square().mean()
    torch.testing.assert_close(spin.unweighted(pred, batch)["pose"], expected)
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
    bmc = task(bodies, "bmc", *changes)
    p, t = bmc.predict(batch)[:, :216].detach().double(), batch["target"][:, :216].double()
    p.requires_grad_()
    s = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    logits = -torch.cdist(p, t).square() / (2 * s**2)
    rows = 60 * (p - t).square().sum(1) / s**2 + 5 * torch.logsumexp(logits, 1)
    released = (rows / 216 * s.detach() ** 2).mean()
    made = 60 * bmc.pose(p, t)
    # 1e-6: sigma is float32.
    torch.testing.assert_close(made, released, rtol=1e-6, atol=1e-6)
    sigma = bmc.loss.likelihood.sigma
    ours, theirs = torch.autograd.grad(made, [p, sigma]), torch.autograd.grad(released, [p, s])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_fits_are_judged_with_their_shape_and_trained_with_a_plausible_one(
    bodies: Path, batch: dict
):
    """SPIN zeroes extreme shapes after judging the fit, not before."""
    spin, target = task(bodies, "spin"), batch["target"].clone()
    true = split_target(target)
    true["has_smpl"][:], true["has_fit"][:] = 0, 1
    true["shape"][:, 0] = 3.5
    true["keypoints"][:] = seen(spin.body(rotations(true["pose"]), true["shape"])[1])
    assert spin.known(true).all()
    pred = torch.cat([target[:, :216], torch.zeros(16, 13)], 1)
    assert float(spin.unweighted(pred, {"target": target})["shape"]) == 0
    true["has_fit"][:], true["has_smpl"][:] = 0, 1  # true shapes are not changed
    assert float(spin.unweighted(pred, {"target": target})["shape"]) > 1


def test_divergence_is_an_error(bodies: Path, batch: dict):
    """Except in the first epochs, which a resumed run continues to count."""
    changes = ("choose=null", "task.warmup=1", "task.overshoot=2")
    bmc, resumed = (task(bodies, "bmc", *changes) for _ in range(2))
    bmc(batch)
    bmc.spread += torch.tensor([50.0, 10.0])
    bmc.end_epoch()
    assert not bmc.spread.any()
    resumed.load_state_dict(bmc.state_dict())
    prior = resumed.loss.prior
    for resumed.loss.prior, advice in ((prior, "Lower loss.strength"), (Flat(), "Lower optim")):
        resumed.spread += torch.tensor([50.0, 10.0])
        with pytest.raises(FloatingPointError, match=rf"overshoot: .* 5\.00 times.*\. {advice}"):
            resumed.end_epoch()
    with torch.no_grad():
        resumed.loss.likelihood.sigma.fill_(0.001)  # pyright: ignore[reportCallIssue]
    with pytest.raises(FloatingPointError, match=r"sigma collapsed to 0\.001, below"):
        resumed.end_epoch()


def test_a_diverged_strength_is_excluded(bodies: Path, tmp_path: Path, monkeypatch):
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


def test_cached_targets_match_their_view(bodies: Path, tmp_path: Path):
    """The features of a mirrored image are stored with the mirrored pose."""
    run(config(bodies, tmp_path, "ihmr/spin_rt", "features.views=2"))
    (path,) = tmp_path.glob("features/*/train/target.npy")
    targets = np.load(path)
    assert targets.shape[0] == 2
    assert not np.allclose(targets[0, :, :216], targets[1, :, :216])


def test_metrics_of_the_truth_do_not_depend_on_chunks(bodies: Path, target: torch.Tensor):
    perfect = torch.cat([target[:, :226], torch.zeros(16, 3)], 1)
    reports = []
    for vertices, chunk in (("gt", 5), ("gt", 64), ("neutral", 64)):
        mean = bodies / "ihmr" / "smpl_mean_params.npz"
        metrics = BodyMetrics(bodies / "ihmr", mean, vertices, chunk)
        metrics.update(perfect, target)
        reports.append(metrics.compute())
    for key in ("mpvpe", "bmpjpe", "bpa_mpjpe_tail10"):
        assert reports[0][key] == pytest.approx(reports[1][key], abs=1e-3)  # float32, millimetres
    assert reports[0]["mpvpe"] == pytest.approx(0, abs=1e-3)
    # Predicted joints, and vertices unless gt, are the neutral body's: the gender makes an error.
    assert 1 < reports[0]["mpjpe"] < 40
    assert 1 < reports[2]["mpvpe"] < 90


def test_errors_against_loops(bodies: Path, target: torch.Tensor):
    folder = bodies / "ihmr"
    target = target[:3]
    pred = torch.cat([target.roll(1, 0)[:, :226], torch.zeros(3, 3)], 1)
    metrics = BodyMetrics(folder, folder / "smpl_mean_params.npz", "neutral", 64)
    errors, rarity = metrics.errors(pred, target)
    table = np.load(folder / "J_regressor_h36m.npy")
    kept = [6, 5, 4, 1, 2, 3, 16, 15, 14, 11, 12, 13, 8, 10]

    def distance(a: np.ndarray, b: np.ndarray) -> Any:
        return pytest.approx(1000 * np.linalg.norm(a - b, axis=1).mean(), rel=1e-4)

    for n in range(3):
        gender = ["male", "female"][int(target[n, -1])]
        true, made = (
            SMPL(folder, name).vertices(rotations(row[None]), row[None, 216:226])[0].numpy()
            for name, row in ((gender, target[n]), ("neutral", pred[n]))
        )
        joints = [((table @ mesh) - (table @ mesh)[0])[kept] for mesh in (true, made)]
        assert float(errors["mpvpe"][n]) == distance(made, true)
        assert float(errors["mpjpe"][n]) == distance(*joints)
        assert float(rarity[n]) == distance(true, metrics.mean_mesh[0].numpy())


def test_a_checkpoint_without_training_is_evaluated_and_plotted(bodies: Path, tmp_path: Path):
    done = run(config(bodies, tmp_path, "ihmr/spin", "trainer.epochs=0", "log.figures=true"))
    assert done["metrics"]["test/mpvpe"] > 0
    tags = EventAccumulator(done["folder"]).Reload().summary_metadata
    assert {"pred_VERTEX", "target_VERTEX", "pred_FACE"} <= set(tags)


def test_a_subspace_balances_only_its_directions():
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(6, 2))[0]
    pred, target = torch.randn(2, 5, 6)
    missed = pred - target
    rest = (missed - missed @ basis @ basis.mT).square().sum(1).mean()
    expected = {
        Batch(): BMC(0.5)(pred @ basis, target @ basis) + rest,
        Flat(): missed.square().sum(1).mean(),
    }
    for prior, value in expected.items():
        coordinates: Any = nn.Identity()
        loss = PoseLoss(coordinates, prior=Subspace(prior, basis), likelihood=Gaussian(0.5))
        torch.testing.assert_close(loss(pred, target), value)


def test_a_stretch_multiplies_the_angles_to_the_mean_pose(bodies: Path, target: torch.Tensor):
    """Against roma's interpolation; the root, the shape and the camera stay."""
    mean = bodies / "ihmr" / "smpl_mean_params.npz"
    pred = torch.cat([target[:, :226], torch.ones(16, 3)], 1).numpy()
    poses = torch.from_numpy(pred[:, :216]).unflatten(1, (24, 3, 3)).double()
    center = mean_rotations(mean).double().expand_as(poses)
    for s in (0.0, 0.5, 1.0):
        made = torch.from_numpy(Stretch(mean, s)(pred))
        joints = made[:, :216].unflatten(1, (24, 3, 3))
        expected = roma.rotmat_slerp(center, poses, torch.tensor([s], dtype=poses.dtype))[0]
        torch.testing.assert_close(joints[:, 1:].double(), expected[:, 1:], atol=1e-5, rtol=0)
        torch.testing.assert_close(joints[:, 0].double(), poses[:, 0], atol=1e-6, rtol=0)
        assert torch.equal(made[:, 216:], torch.from_numpy(pred[:, 216:]))
    twice = Stretch(mean, 2.0)(Stretch(mean, 0.5)(pred))
    np.testing.assert_allclose(twice, pred, atol=1e-5)  # float32
