"""nkolot/SPIN: rotations, camera, body, augmentation, network, losses, fits, evaluation.

The body is the free one of the mini dataset, in SMPL's format. N: people.
"""

import contextlib
import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import roma
import torch
from PIL import Image
from smplx.utils import Struct
from torch import Tensor, nn

from datasets import crops, ihmr
from datasets.crops import View
from engine.benchmarks.bodies.metrics import BodyMetrics
from engine.runs.run import composed
from metrics import pa_mpjpe
from models import released
from models.smpl import (
    EVALUATED,
    JOINT_MAP,
    SELECTED,
    SMPL,
    matrix_from_6d,
    project,
    read_body,
)
from scripts.released.clones import MISC, Clone, Empty
from scripts.released.inputs import Network, Quantities, rms, task
from synthetic.mini.bodies import write_bodies

PAPER = ["experiment=ihmr/spin_rt", "preset=paper"]
MEAN, STD = (np.array(x)[:, None, None] for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
VIEWS = (View(), View(True, (0.8, 1.1, 1.3), 0.0, 1.0), View(True, (1.0, 1.0, 1.0), 25.0, 1.15))


def spin_clone(root: Path) -> Clone:
    """Return the clone with a pose prior of zero, which the reprojection error does not contain."""
    prior = Network(lambda pose, betas: pose.new_zeros(len(pose)))
    given = [MISC, Empty("smplify.prior", MaxMixturePrior=lambda **options: prior)]
    return Clone(root, ".", "SPIN", given)


def poses(count: int = 8, seed: int = 0) -> Tensor:
    """(N, 72) axis-angles."""
    return 0.4 * torch.randn(count, 72, generator=torch.Generator().manual_seed(seed))


def matrices(pose: Tensor) -> Tensor:
    """(N, 72) -> (N, 24, 3, 3)."""
    return roma.rotvec_to_rotmat(pose.unflatten(-1, (24, 3)))


def write_body(work: Path) -> Path:
    """Write SPIN's files with a few people of the mini dataset."""
    counts = {"h36m_train": 12, "coco_2014_train": 8, "3dpw_test": 20}
    write_bodies(work / "ihmr", counts, size=260, seed=0)
    return work / "ihmr"


def their_body(clone: Clone, folder: Path, gender: str = "neutral") -> Any:
    """Return their SMPL, which is smplx's, filled with the arrays of ours."""
    module, config = clone.load("models.smpl"), clone.load("config")
    config.JOINT_REGRESSOR_TRAIN_EXTRA = str(folder / "J_regressor_extra.npy")
    arrays = read_body(folder / f"SMPL_{gender.upper()}.npz")
    ids = dict(zip(SELECTED, arrays.pop("vertex_ids").tolist(), strict=True))
    return module.SMPL("", data_struct=Struct(**arrays), vertex_ids=ids, create_transl=False)


def geometry(root: Path, work: Path) -> Quantities:
    """Rotations, the camera, and the orders of joints."""
    clone = spin_clone(root)
    theirs, constants = clone.load("utils.geometry"), clone.load("constants")
    generator = torch.Generator().manual_seed(0)
    six = torch.randn(200, 6, generator=generator)
    vectors = torch.randn(200, 3, generator=generator)
    points, camera = torch.randn(5, 49, 3, generator=generator), torch.rand(5, 3) + 0.4
    place = torch.stack([camera[:, 1], camera[:, 2], 10000 / (224 * camera[:, 0] + 1e-9)], 1)
    eye = torch.eye(3).expand(5, 3, 3)
    image = theirs.perspective_projection(points, eye, place, 5000.0, torch.zeros(5, 2)) / 112
    yield "rotation from six numbers", matrix_from_6d(six), theirs.rot6d_to_rotmat(six)
    made = theirs.batch_rodrigues(vectors)
    yield "rotation from axis and angle", roma.rotvec_to_rotmat(vectors), made
    yield "projection with the predicted camera", project(points, camera), image
    ids = [constants.JOINT_MAP[name] for name in constants.JOINT_NAMES]
    yield "49 joints among the body's", JOINT_MAP, ids
    yield "14 evaluated joints of H36M's 17", EVALUATED, constants.H36M_TO_J14
    yield "mirrored pose", crops.FLIP_POSE, constants.SMPL_JOINTS_FLIP_PERM
    yield "mirrored keypoints", crops.FLIP_49, constants.J49_FLIP_PERM


def body(root: Path, work: Path) -> Quantities:
    """Vertices and joints of posed bodies."""
    clone, folder = spin_clone(root), write_body(work)
    pose, shape = poses(), torch.randn(8, 10)
    out = their_body(clone, folder)(betas=shape, body_pose=pose[:, 3:], global_orient=pose[:, :3])
    vertices, joints = SMPL(folder)(matrices(pose), shape)
    yield "SMPL, vertices", vertices, out.vertices
    yield "SMPL, 49 joints", joints, out.joints


def network(root: Path, work: Path) -> Quantities:
    """HMR, saved by their checkpoint saver and read by ours."""
    clone, folder = spin_clone(root), write_body(work)
    hmr, saver = clone.load("models.hmr"), clone.load("utils.saver")
    torch.manual_seed(0)
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        model = hmr.hmr(str(folder / "smpl_mean_params.npz"), pretrained=False)
        model(torch.randn(3, 3, 224, 224))
        theirs = model.eval()(images)
        optimizers = {"optimizer": torch.optim.Adam(model.parameters())}
        save = saver.CheckpointSaver(str(work)).save_checkpoint
        save({"model": model}, optimizers, 1, 2, 64, list(range(5)), 3)
        own = released.load(next(work.glob("*.pt")), "spin")(images)
    for index, what in enumerate(("rotations", "shape", "camera")):
        yield f"HMR from a checkpoint of their saver: {what}", own[index], theirs[index]


def task_of(overrides: list[str], folder: Path) -> tuple[Any, Tensor, Tensor]:
    """Return a task without its network, predictions (N, 229) and targets (N, T)."""
    cfg = composed("train", [*overrides, f"++paths.ihmr={folder}"])
    people = ihmr.read_people(folder / "h36m_train.npz", folder)
    rows = [ihmr.target(people, row, VIEWS[row % 3]) for row in range(12)]
    target = torch.from_numpy(np.stack(rows))
    generator = torch.Generator().manual_seed(1)
    true = ihmr.split_target(target)
    pose = matrices(poses(12, seed=2)).flatten(1)
    shape = true["shape"] + 0.3 * torch.randn(12, 10, generator=generator)
    camera = torch.tensor([0.9, 0.0, 0.1]) + 0.1 * torch.rand(12, 3, generator=generator)
    own = task(cfg, nn.Identity(), true["pose"].numpy())
    return own, torch.cat([pose, shape, camera], 1), target


def losses(root: Path, work: Path) -> Quantities:
    """The terms of SPIN's loss, which `preset=paper` keeps."""
    clone, folder = spin_clone(root), write_body(work)
    trainer = clone.load("train.trainer").Trainer
    own, pred, target = task_of(PAPER, folder)
    true = ihmr.split_target(target)
    parts = own.unweighted(pred, {"target": target})
    pose, shape, camera = pred.split((216, 10, 3), 1)
    joints = SMPL(folder)(pose.unflatten(1, (24, 3, 3)), shape)[1]
    itself = SimpleNamespace(
        criterion_keypoints=nn.MSELoss(reduction="none"), criterion_regr=nn.MSELoss(), device="cpu"
    )
    image, known = project(joints, camera), torch.ones(12)
    axis_angles = rotvec(true["pose"])
    keypoints = true["keypoints"].unflatten(1, (49, 3))
    points = true["joints"].unflatten(1, (24, 4))
    theirs = {
        "keypoints": trainer.keypoint_loss(itself, image, keypoints, 0.0, 1.0),
        "joints": trainer.keypoint_3d_loss(itself, joints, points, known),
    }
    rows = pose.unflatten(1, (24, 3, 3)), shape, axis_angles, true["shape"], known
    theirs["pose"], theirs["shape"] = trainer.smpl_losses(itself, *rows)
    for name, value in theirs.items():
        yield f"loss of {name} (preset=paper)", parts[name], value


def rotvec(rows: Tensor) -> Tensor:
    """(N, 216) -> (N, 72)."""
    return roma.rotmat_to_rotvec(rows.unflatten(1, (24, 3, 3))).flatten(1)


def fits(root: Path, work: Path) -> Quantities:
    """Reprojection error of static fits; a fit is used below 100 pixels^2."""
    clone, folder = spin_clone(root), write_body(work)
    smplify, geometry = clone.load("smplify.smplify"), clone.load("utils.geometry")
    pose, shape = poses(12, seed=3), torch.randn(12, 10)
    joints = SMPL(folder)(matrices(pose), shape)[1]
    camera = torch.tensor([0.9, 0.0, 0.1]).expand(12, 3)
    seen = project(joints, camera) + 0.05 * torch.randn(12, 49, 2)
    keypoints = torch.cat([seen, torch.rand(12, 49, 1)], -1)
    made = their_body(clone, folder)
    with mock.patch.object(smplify, "SMPL", return_value=made):
        fitter = smplify.SMPLify(device=torch.device("cpu"))
        pixels = keypoints.clone()
        pixels[..., :2] = 112 * (pixels[..., :2] + 1)
        place = geometry.estimate_translation(joints, pixels, focal_length=5000.0, img_size=224.0)
        centre = torch.full((12, 2), 112.0)
        theirs = fitter.get_fitting_loss(pose, shape, place, centre, pixels).mean(-1)
    own = task_of(PAPER, folder)[0].counting.fit_error(joints, keypoints.flatten(1))
    yield "reprojection error of a static fit", own, theirs


def evaluation(root: Path, work: Path) -> Quantities:
    """Procrustes, and their whole evaluation on people in the format of 3DPW."""
    clone, folder = spin_clone(root), write_body(work)
    utils, config = clone.load("utils.pose_utils"), clone.load("config")
    a, b = np.random.default_rng(0).normal(0, 0.3, (2, 50, 14, 3))
    theirs = utils.reconstruction_error(a, b, reduction=None)
    yield "PA-MPJPE of random joints", pa_mpjpe(a, b), theirs
    script = clone.load("eval")
    config.JOINT_REGRESSOR_H36M = str(folder / "J_regressor_h36m.npy")
    config.DATASET_FILES[0]["3dpw"] = str(folder / "3dpw_test.npz")
    config.DATASET_FOLDERS["3dpw"] = str(folder)
    made = {gender: their_body(clone, folder, gender) for gender in ("neutral", "male", "female")}
    pred = torch.cat([matrices(poses(20, seed=4)).flatten(1), torch.randn(20, 10)], 1)
    rotations, shape = pred[:, :216].unflatten(1, (24, 3, 3)), pred[:, 216:]
    network = Network(lambda images: (rotations, shape, torch.zeros(len(images), 3)))
    printed_text = io.StringIO()
    bodies_of = mock.patch.object(script, "SMPL", lambda *a, gender="neutral", **k: made[gender])
    with bodies_of, contextlib.redirect_stdout(printed_text):
        dataset = clone.load("datasets.base_dataset").BaseDataset(None, "3dpw", is_train=False)
        script.run_evaluation(network, "3dpw", dataset, None, batch_size=20, num_workers=0)
    printed = re.findall(r"(?:MPJPE|Reconstruction Error): ([\d.]+)", printed_text.getvalue())
    people = ihmr.read_people(folder / "3dpw_test.npz", folder)
    target = np.stack([ihmr.target(people, row, View()) for row in range(20)])
    metrics = BodyMetrics(folder, folder / "smpl_mean_params.npz", "neutral", 64)
    metrics.update(torch.cat([pred, torch.zeros(20, 3)], 1), torch.from_numpy(target))
    report = metrics.compute()
    yield "evaluation on 3DPW: MPJPE", report["mpjpe"], float(printed[-2])
    yield "evaluation on 3DPW: PA-MPJPE", report["pa_mpjpe"], float(printed[-1])


def samples(root: Path, work: Path) -> Quantities:
    """A person unchanged, mirrored, and turned, mirrored and scaled."""
    clone, folder = spin_clone(root), write_body(work)
    dataset, config = clone.load("datasets.base_dataset"), clone.load("config")
    config.DATASET_FILES[1]["h36m"] = str(folder / "h36m_train.npz")
    config.DATASET_FOLDERS["h36m"] = str(folder)
    people = ihmr.read_people(folder / "h36m_train.npz", folder)
    theirs = dataset.BaseDataset(None, "h36m", is_train=True)
    for view in VIEWS:
        sampled = (int(view.flip), np.array(view.gain), view.rotation, view.scale)
        with mock.patch.object(theirs, "augm_params", return_value=sampled):
            item = theirs[0]
        own = ihmr.split_target(torch.from_numpy(ihmr.target(people, 0, view))[None])
        title = "loader, a person" if view == View() else "loader, mirrored"
        title += ", turned by 25 degrees, scaled by 1.15" if view.rotation else ""
        yield f"{title}: pose", own["pose"], matrices(item["pose"][None]).flatten(1)
        yield f"{title}: 3-D joints", own["joints"], item["pose_3d"]
        yield f"{title}: keypoints in the crop", own["keypoints"], item["keypoints"]
        image = crops.crop(read_image(people, 0), people.center[0], people.scale[0], view, 224)
        planes = (image.transpose(2, 0, 1) / 255 - MEAN) / STD
        yield f"{title}: image, rms", rms(planes, item["img"]), 0.0


def read_image(people: ihmr.People, row: int) -> np.ndarray:
    return np.array(Image.open(people.images / str(people.imgname[row])).convert("RGB"))
