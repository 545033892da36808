"""open-mmlab/mmhuman3d: the crop of a person, the metrics of IHMR, the settings of its config."""

import contextlib
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from datasets import crops, ihmr
from datasets.crops import View
from datasets.io.arrays import read_npz
from metrics import mesh_report, pa_mpjpe
from metrics.errors import mean_distance
from models.smpl import SMPL, matrix_from_6d
from scripts.released.bodies.mmhuman import CONFIG, Body, mmhuman_clone
from scripts.released.bodies.spin import matrices, read_image, rotvec, write_body
from scripts.released.inputs import Quantities, official, rms, settings

VIEWS = {
    "a person": View(),
    "turned by 20 degrees, scaled by 1.1": View(rotation=20.0, scale=1.1),
    "mirrored, turned, scaled": View(flip=True, rotation=20.0, scale=1.1),
}


def samples(root: Path, work: Path) -> Quantities:
    """A person after their flip and affine crop, for the same random numbers.

    They mirror before they rotate, we after: a mirrored person is rotated the other way.
    """
    clone, folder = mmhuman_clone(root), write_body(work)
    mmcv: Any = clone.modules["mmcv"]
    mmcv.imflip = lambda image, direction: image[:, ::-1].copy()
    transforms = clone.load("mmhuman3d.data.datasets.pipelines.transforms")
    cfg = official("ihmr/bmc")
    people = ihmr.read_people(folder / "h36m_train.npz", folder)
    image, box = read_image(people, 0), (people.center[0], people.scale[0])
    vector = rotvec(torch.from_numpy(people.rotations[0]).reshape(1, 216))[0].numpy()
    for name, view in VIEWS.items():
        results = {
            "img": image,
            "center": people.center[0].copy(),
            "scale": np.full(2, 200 * people.scale[0] * view.scale, np.float32),
            "rotation": -view.rotation if view.flip else view.rotation,
            "keypoints2d": people.keypoints[0].copy(),
            "keypoints3d": np.concatenate([np.zeros((25, 4), np.float32), people.joints[0]]),
            "smpl_global_orient": vector[:3],
            "smpl_body_pose": vector[3:].reshape(23, 3),
        }
        mirror = transforms.RandomHorizontalFlip(float(view.flip), "smpl_49")
        if view.flip:
            results = mirror(results)
        made = transforms.MeshAffine(224)(results)
        own = ihmr.split_target(torch.from_numpy(ihmr.target(people, 0, view))[None])
        points = own["keypoints"].unflatten(1, (49, 3))[0]
        seen = (points[:, 2] > 0).numpy()
        pixels = 112 * (points[seen, :2] + 1)
        title = f"IHMR, loader, {name}"
        yield f"{title}: keypoints", pixels, made["keypoints2d"][seen, :2]
        yield f"{title}: 3-D joints", own["joints"], made["keypoints3d"][25:]
        pose = np.concatenate([made["smpl_global_orient"], made["smpl_body_pose"].ravel()])
        true = matrices(torch.from_numpy(pose.astype(np.float32))[None])
        yield f"{title}: pose", own["pose"], true
        picture = crops.crop(image, *box, view, 224, cfg.dataset.one_warp)
        yield f"{title}: image, rms", rms(picture, made["img"]), 0.0


def metrics(root: Path, work: Path) -> Quantities:
    """bMPVPE, bMPJPE and bPA-MPJPE over rarity regions and tails."""
    clone = mmhuman_clone(root)
    errors = clone.load("mmhuman3d.core.evaluation.eval_utils")
    package = clone.modules["mmhuman3d.core.evaluation"]
    for name in ("keypoint_3d_auc", "keypoint_3d_pck", "keypoint_mpjpe", "vertice_pve"):
        setattr(package, name, getattr(errors, name))
    clone.load("mmhuman3d.utils.geometry")
    dataset = clone.load("mmhuman3d.data.datasets.human_image_dataset").HumanImageDataset
    folder = write_body(work)
    (work / "data" / "body_models").mkdir(parents=True)
    mean = work / "data" / "body_models" / "smpl_mean_params.npz"
    mean.write_bytes((folder / "smpl_mean_params.npz").read_bytes())
    rng = np.random.default_rng(0)
    body = Body(folder)
    vectors = 0.3 * rng.standard_normal((150, 72)).astype(np.float32) * rng.gamma(2, 1, (150, 1))
    rows = torch.from_numpy(vectors.astype(np.float32))
    truth = body(global_orient=rows[:, :3], body_pose=rows[:, 3:], betas=torch.zeros(150, 10))
    true = 1000 * truth["vertices"].numpy()
    pred = true + rng.normal(0, 60, true.shape).astype(np.float32)
    joints = 1000 * truth["joints"].numpy()[:, :14]
    guess = joints + rng.normal(0, 60, joints.shape).astype(np.float32)
    given = {"keypoint": (guess, joints, np.ones((150, 14), bool)), "vertice": (pred, true, None)}
    itself = SimpleNamespace(_parse_result=lambda file, mode: given[mode], body_model=body)
    with clone.imports(), contextlib.chdir(work):
        theirs = dict(dataset._report_ihmr(itself, None))
    pose = torch.from_numpy(read_npz(mean)["pose"])
    rotations = matrix_from_6d(pose.unflatten(0, (24, 6)))[None]
    middle = 1000 * SMPL(folder).vertices(rotations, torch.zeros(1, 10))
    found = {
        "mpvpe": mean_distance(pred, true),
        "mpjpe": mean_distance(guess, joints),
        "pa_mpjpe": pa_mpjpe(guess, joints),
    }
    own = mesh_report(found, mean_distance(true, middle.expand(150, -1, -1).numpy()))
    for name, key in (("bMPVPE", "mpvpe"), ("bMPJPE", "mpjpe"), ("bPA-MPJPE", "pa_mpjpe")):
        mine = [own[f"b{key}"], own[f"b{key}_tail10"], own[f"b{key}_tail5"]]
        other = [theirs[f"{name} {group}"] for group in ("All", "Tail 10%", "Tail 5%")]
        yield f"{name}: all, tail 10%, tail 5%", mine, other


def all_settings(root: Path, work: Path) -> Quantities:
    """Their config of BMC and `preset=official`."""
    clone, own = mmhuman_clone(root), official("ihmr/bmc")
    theirs = runpy.run_path(str(clone.folder / CONFIG))
    transforms = clone.load("mmhuman3d.data.datasets.pipelines.transforms")
    used = {key: theirs[key] for key in ("runner", "optimizer", "img_res")}
    used["pose"] = theirs["model"]["loss_smpl_pose"]
    used["turned"] = transforms.GetRandomScaleRotation().rot_prob
    yield settings("bodies", used)
    shares = theirs["data"]["train"]
    names = {"h36m": "h36m", "mpi_inf_3dhp": "mpi-inf-3dhp", "lsp": "lsp-orig", "lspet": "lspet"}
    names |= {"mpii": "mpii", "coco": "coco"}
    order = [node["dataset_name"] for node in shares["configs"]]
    probabilities = [own.dataset.train[names[name]].probability for name in order]
    yield "IHMR, shares of the training sets", probabilities, shares["partition"]
