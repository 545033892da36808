"""open-mmlab/mmhuman3d, the only release of IHMR: its loss terms and its mask of fits.

mmcv and pytorch3d are not needed: the body is the free one of the mini dataset, the camera of its
fits a pinhole. N: people.
"""

import runpy
from functools import partial
from pathlib import Path
from typing import Any

import roma
import torch
from torch import Tensor, nn

from datasets import ihmr
from models.smpl import SMPL
from scripts.released.bodies.spin import matrices, poses, rotvec, task_of, write_body
from scripts.released.clones import Clone, Empty
from scripts.released.inputs import Quantities, noisy_losses

OFFICIAL = ["experiment=ihmr/bmc", "preset=official"]
CONFIG = "configs/balanced_mse/resnet50_spin_ihmr_ft_bmc.py"


class Registry:
    """mmcv's registry of classes by name."""

    def __init__(self, name: str, **options: Any):
        self.known: dict[str | None, Any] = {}

    def register_module(self, name: str | None = None, module: Any = None) -> Any:
        if module is not None:
            self.known[name] = module
        return lambda made: made

    def build(self, cfg: dict) -> Any:
        return self.known[cfg["type"]](**{k: v for k, v in cfg.items() if k != "type"})


def mmhuman_clone(root: Path) -> Clone:
    registry = Registry("")
    given = [
        Empty("mmcv.runner", BaseModule=nn.Module, get_dist_info=lambda: (0, 1)),
        Empty("mmcv.utils", Registry=Registry),
        Empty("mmhuman3d.data.datasets.builder", DATASETS=registry, PIPELINES=registry),
    ]
    return Clone(root, ".", "mmhuman3d", given)


class Body(nn.Module):
    """Our body behind their interface."""

    num_joints, keypoint_dst = 49, "smpl_49"

    def __init__(self, folder: Path):
        super().__init__()
        self.body = SMPL(folder)

    def forward(self, **given: Any) -> dict[str, Tensor]:
        root, rest = given["global_orient"], given["body_pose"]
        if given.get("pose2rot", True):
            vectors = torch.cat([root.reshape(-1, 3), rest.reshape(len(root), 69)], 1)
            rotations = roma.rotvec_to_rotmat(vectors.unflatten(1, (24, 3)))
        else:
            rotations = torch.cat([root, rest], 1)
        vertices, joints = self.body(rotations, given["betas"])
        place = given.get("transl")
        if place is not None:
            vertices, joints = vertices + place[:, None], joints + place[:, None]
        mask = torch.ones(joints.shape[:2])
        return {"vertices": vertices, "joints": joints, "joint_mask": mask}


class Pinhole(nn.Module):
    """Focal length 5000, 224 pixels."""

    def transform_points_screen(self, points: Tensor) -> Tensor:
        return torch.cat([5000 * points[..., :2] / points[..., 2:] + 112, points[..., 2:]], -1)


def estimator(clone: Clone, folder: Path, fits: tuple[Tensor, Tensor]) -> Any:
    """Return their estimator with the losses of their config."""
    architecture = clone.load("mmhuman3d.models.architectures.mesh_estimator")
    smplify = clone.load("mmhuman3d.models.registrants.smplify")
    build = clone.load("mmhuman3d.models.losses.builder").build_loss
    config = runpy.run_path(str(clone.folder / CONFIG))
    whole = object.__new__(architecture.ImageBodyModelEstimator)
    nn.Module.__init__(whole)
    for key, node in config["model"].items():
        if key.startswith("loss_"):
            node = {k: v for k, v in node.items() if k != "all_gather"}  # one process
            setattr(whole, key, build(node))
    for key in ("loss_vertex", "loss_segm_mask"):
        setattr(whole, key, None)
    whole.body_model_train, whole.convention = Body(folder), config["model"]["convention"]
    whole.registration_mode = config["registration"]["mode"]
    whole.fits_dict = type("Fits", (), {"__getitem__": lambda self, key: fits})()
    keys = ("num_epochs", "stages", "keypoints2d_loss", "ignore_keypoints")
    options = {key: config["registrant"][key] for key in keys}
    options |= {"body_model": whole.body_model_train, "camera": Pinhole()}
    whole.registrant = smplify.SMPLify(device=torch.device("cpu"), **options)
    return whole


def batch(folder: Path) -> tuple[Any, Tensor, Tensor]:
    """Return the task of `preset=official`, predictions and targets.

    Half of the people have fits, some of them bad and one with an extreme shape; some keypoints
    are not visible.
    """
    task, pred, target = task_of(OFFICIAL, folder)
    true = ihmr.split_target(target)  # views of the target
    generator = torch.Generator().manual_seed(5)
    for name, width in (("keypoints", 3), ("joints", 4)):
        entries = true[name].unflatten(1, (-1, width))
        confidence = torch.rand(entries.shape[:2], generator=generator)
        entries[..., -1] = confidence * (confidence > 0.2)
    true["has_smpl"][6:], true["has_fit"][6:] = 0, 1
    true["pose"][9:] = matrices(poses(3, seed=8)).flatten(1)
    true["shape"][8] = 3.5
    return task, pred, target


def losses(root: Path, work: Path) -> Quantities:
    """Which fits are used, and the weighted losses, for the same people."""
    clone, folder = mmhuman_clone(root), write_body(work)
    task, pred, target = batch(folder)
    true = ihmr.split_target(target)
    vectors, shape = rotvec(true["pose"]), true["shape"]
    theirs = estimator(clone, folder, (vectors.clone(), shape.clone()))
    keypoints = true["keypoints"].unflatten(1, (49, 3)).clone()
    keypoints[..., :2] = 112 * (keypoints[..., :2] + 1)
    joints = torch.cat([torch.zeros(12, 25, 4), true["joints"].unflatten(1, (24, 4))], 1)
    given = {
        "img_metas": [{"dataset_name": "coco"}] * 12,
        "sample_idx": torch.arange(12)[:, None],
        "is_flipped": torch.zeros(12, 1),
        "rotation": torch.zeros(12, 1),
        "smpl_betas": shape,
        "smpl_global_orient": vectors[:, :3],
        "smpl_body_pose": vectors[:, 3:].unflatten(1, (23, 3)),
        "keypoints2d": keypoints,
        "keypoints3d": joints,
        "has_smpl": true["has_smpl"],
    }
    pred = pred.requires_grad_()
    pose, beta, camera = pred.split((216, 10, 3), 1)
    made = {"pred_pose": pose.unflatten(1, (24, 3, 3)), "pred_shape": beta, "pred_cam": camera}
    errors: list[Tensor] = []
    evaluate = theirs.registrant.evaluate

    def record(**options: Any) -> dict:
        found = evaluate(**options)
        errors.append(found["keypoint2d_loss"].sum(-1).sum(-1))
        return found

    theirs.registrant.evaluate = record
    targets = theirs.run_registration(made, given)
    found = theirs.compute_losses(made, targets)
    body_joints = SMPL(folder)(true["pose"].unflatten(1, (24, 3, 3)), shape)[1]
    error = task.counting.fit_error(body_joints, true["keypoints"])
    yield "IHMR, reprojection error of a static fit", error, errors[0]
    own = task.known(true)
    yield "IHMR, whose pose and shape count", own.numpy(), targets["valid_fit"].numpy()
    parts = task.unweighted(pred, {"target": target})
    names = {"keypoints": "keypoints2d", "joints": "keypoints3d", "shape": "smpl_betas"}
    names |= {"camera": "camera", "pose": "smpl_pose"}
    terms = {
        name: (task.scale[name] * parts[name], found[f"{other}_loss"])
        for name, other in names.items()
    }
    for name, sides in terms.items():
        title = "BMC of the pose" if name == "pose" else f"loss of {name}"
        yield f"IHMR, {title}: value", *sides
        gradients = (torch.autograd.grad(term, pred, retain_graph=True)[0] for term in sides)
        yield f"IHMR, {title}: gradient", *gradients
    noise = task.loss.likelihood.sigma, theirs.loss_smpl_pose.noise_sigma
    gradients = (torch.autograd.grad(*pair)[0] for pair in zip(terms["pose"], noise, strict=True))
    yield "IHMR, BMC of the pose: gradient to sigma", *gradients


def sigma(root: Path, work: Path) -> Quantities:
    """BMC on 216 numbers for other noise scales, and sigma after 500 steps."""
    theirs = mmhuman_clone(root).load("mmhuman3d.models.losses.balanced_mse_loss")
    folder = write_body(work)
    pred, target = (matrices(poses(64, seed=seed)).flatten(1) for seed in (1, 2))
    pred = 0.3 * pred + 0.7 * target

    def ours(start: float) -> Any:
        task, *_ = task_of(OFFICIAL, folder)
        loss: Any = lambda p, t: task.scale["pose"] * task.pose(p, t)  # noqa: E731
        loss.likelihood = task.loss.likelihood
        with torch.no_grad():
            loss.likelihood.sigma.fill_(start)
        return loss

    other = partial(theirs.BMCLossMD, loss_mse_weight=60, loss_debias_weight=5)
    title = "IHMR, BMC, {}, sigma 0.3, 1, 3"
    yield from noisy_losses(title, ours, other, (pred, target), (0.3, 1.0, 3.0))
    pair = ours(1.0), other(1.0)
    noises = pair[0].likelihood.sigma, pair[1].noise_sigma
    for loss, noise in zip(pair, noises, strict=True):
        optimizer = torch.optim.Adam([noise], lr=1e-2)
        for _ in range(500):
            optimizer.zero_grad()
            loss(pred, target).backward()
            optimizer.step()
    yield "IHMR, BMC, sigma after 500 steps", *noises
