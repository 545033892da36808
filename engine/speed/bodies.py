"""What IHMR costs: the balanced term beside a training step, and a test set's memory.

GAI, BMC          seconds of the loss alone, N = 128 poses of 216 numbers, 16 components
head step         ResNet-50's features of 128 images at 224 px, then a step of the head with GAI
evaluation        errors of many people on a mesh of SMPL's size, and the most memory it took
"""

import resource
import time
from pathlib import Path

import numpy as np
import torch

from datasets.ihmr import FIELDS
from engine.benchmarks.bodies.metrics import BodyMetrics
from losses import BMC, BalancedLoss, Gaussian, GaussianMixture
from models.hmr import HMR
from models.rotations import matrix_from_axis_angle
from models.smpl import SELECTED
from synthetic.mini.body import smpl_arrays

DIMS = 216


def seconds(run, rounds: int) -> float:
    """The median time of a call, after one that does not count."""
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken[1:]))


def steps(batch: int, components: int, image: int, rounds: int) -> dict[str, float]:
    """Seconds of the two losses, forward and backward, and of a step without cached features."""
    torch.manual_seed(0)
    poses = matrix_from_axis_angle(0.4 * torch.randn(2000, 24, 3)).flatten(1)
    mixture = GaussianMixture.fit(poses, components, regularisation=0.01)
    gai = BalancedLoss(Gaussian(1.0, learn_sigma=True), mixture, strength=0.25)
    bmc = BMC(1.0, learn_sigma=True, strength=0.25)
    target = poses[:batch]
    pred = (target + 0.1 * torch.randn(batch, DIMS)).requires_grad_()
    model = HMR().freeze(freeze_bn=True).train()
    images = torch.randn(batch, 3, image, image)

    def step() -> None:
        rotations, shape, _ = model(images)
        (gai(rotations.flatten(1), target) + shape.square().mean()).backward()

    return {
        "GAI": seconds(lambda: gai(pred, target).backward(), rounds),
        "BMC": seconds(lambda: bmc(pred, target).backward(), rounds),
        "head step": seconds(step, 1),
    }


def evaluation(people: int, vertices: int, folder: Path, chunk: int) -> dict[str, float]:
    """Seconds and the peak memory (GB) of the metrics on a body of that many vertices."""
    write_large_body(folder, vertices)
    metrics = BodyMetrics(folder, folder / "smpl_mean_params.npz", "neutral", chunk)
    start = time.perf_counter()
    for count in [256] * (people // 256) + [people % 256]:
        pose = matrix_from_axis_angle(0.3 * torch.randn(count, 24, 3)).flatten(1)
        target = torch.zeros(count, sum(FIELDS.values()))
        target[:, :DIMS], target[:, -1] = pose, torch.arange(count) % 2
        pred = torch.cat([pose.roll(1, 0), torch.zeros(count, 13)], 1)
        metrics.update(pred, target)
    metrics.compute()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": time.perf_counter() - start, "peak GB": peak}


def write_large_body(folder: Path, vertices: int) -> None:
    """The free body, its vertices repeated up to a number: it costs what any such mesh does."""
    small = smpl_arrays("neutral")
    rows = np.arange(vertices) % len(small["v_template"])
    per_vertex = {key: small[key][rows] for key in ("v_template", "shapedirs", "posedirs")}
    regressor = np.zeros((24, vertices), np.float32)
    regressor[:, : len(small["v_template"])] = small["J_regressor"]
    arrays = {**small, **per_vertex, "weights": small["weights"][rows], "J_regressor": regressor}
    arrays["vertex_ids"] = np.arange(len(SELECTED))
    for gender in ("NEUTRAL", "MALE", "FEMALE"):
        np.savez(folder / f"SMPL_{gender}.npz", **arrays)  # pyright: ignore[reportArgumentType]
    even = np.full((17, vertices), 1 / vertices, np.float32) * np.arange(1, 18)[:, None]
    np.save(folder / "J_regressor_extra.npy", even[:9])
    np.save(folder / "J_regressor_h36m.npy", even)
    pose = np.eye(3)[:, :2].reshape(-1)
    mean = {"pose": np.tile(pose, 24), "shape": np.zeros(10), "cam": np.zeros(3)}
    np.savez(folder / "smpl_mean_params.npz", **mean)  # pyright: ignore[reportArgumentType]
