"""open-mmlab/mmhuman3d: the crop of a person, the metrics of IHMR, the settings of its config."""

import contextlib
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from datasets import crops, ihmr
from datasets.crops import View
from engine.run import composed
from metrics import mesh_report, pa_mpjpe
from metrics.errors import mean_distance
from models import SMPL
from models.rotations import matrix_from_6d
from scripts.released.lines import Lines
from scripts.released.mmhuman import CONFIG, Body, open_clone
from scripts.released.spin import FLOAT32, ihmr_images, write_body


def crop(root: Path | None, work: Path, lines: Lines) -> None:
    """Their affine crop: keypoints and the picture."""
    clone, folder = open_clone(root), write_body(work)
    transforms = clone.load("mmhuman3d.data.datasets.pipelines.transforms")
    people = ihmr.read_people(folder / "h36m_train.npz", ihmr_images(folder))
    view = View(rotation=20.0, scale=1.1)
    box = np.full(2, 200 * people.scale[0] * view.scale, np.float32)
    results = {"center": people.center[0], "scale": box, "rotation": view.rotation}
    with clone.running():
        made = transforms.MeshAffine(224)({**results, "keypoints2d": people.keypoints[0].copy()})
    own = crops.crop_keypoints(people.keypoints[0], people.center[0], people.scale[0], view)
    seen = people.keypoints[0][:, 2] > 0
    pixels = 112 * (own[seen, :2] + 1)
    lines.add(
        "IHMR, keypoints in the turned crop", pixels, made["keypoints2d"][seen, :2], 1e-3, "px"
    )


def metrics(root: Path | None, work: Path, lines: Lines) -> None:
    """bMPVPE and its kin over rarity regions and tails."""
    clone = open_clone(root)
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
    with clone.imports(), clone.running(), contextlib.chdir(work):
        theirs = dict(dataset._report_ihmr(itself, None))
    with np.load(mean) as file:
        pose = torch.from_numpy(file["pose"])
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
        lines.add(f"{name}: all, tail 10%, tail 5%", mine, other, FLOAT32)


def settings(root: Path | None, work: Path, lines: Lines) -> None:
    """What their config of BMC says beside `preset=official`."""
    clone = open_clone(root)
    with clone.running():
        theirs = runpy.run_path(str(clone.folder / CONFIG))
    own = composed("train", ["experiment=ihmr/bmc", "preset=official"])
    rates = theirs["optimizer"]
    pairs = {
        "epochs": (own.trainer.epochs, theirs["runner"]["max_epochs"]),
        "learning rate": (own.optim.optimizer.lr, rates["head"]["lr"]),
        "learning rate of sigma": (own.optim.loss_lr, rates["loss_smpl_pose"]["lr"]),
        "sigma at the start": (
            own.loss.likelihood.sigma,
            theirs["model"]["loss_smpl_pose"]["init_noise_sigma"],
        ),
        "image size": (own.dataset.size, theirs["img_res"]),
    }
    mine, other = zip(*pairs.values(), strict=True)
    lines.same(
        f"IHMR, settings: {', '.join(pairs)}", list(map(float, mine)), list(map(float, other))
    )
    shares = theirs["data"]["train"]
    names = {"h36m": "h36m", "mpi_inf_3dhp": "mpi-inf-3dhp", "lsp": "lsp-orig", "lspet": "lspet"}
    names |= {"mpii": "mpii", "coco": "coco"}
    order = [node["dataset_name"] for node in shares["configs"]]
    probabilities = [own.dataset.train[names[name]].probability for name in order]
    lines.same("IHMR, shares of the training sets", probabilities, shares["partition"])


CHECKS = (crop, metrics, settings)
