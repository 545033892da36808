"""Terms of SPIN and MMHuman3D against loops, and against numbers recorded from their code.

Recorded from SPIN's SMPLify.get_fitting_loss and estimate_translation, and from MMHuman3D's
BodyModelEstimator.compute_keypoints{2d,3d}_loss and SMPLify._compute_loss, on the same inputs.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.benchmarks.bodies.terms import Released, Spin
from models.smpl import project

SPIN = Spin(good_fit=100, fit_robust=100)
RELEASED = Released(robust=1, good_fit=10, fit_robust=100)
# of fits with increasing errors, the fifth with few keypoints
SPIN_FITS = [0.07005373, 3.039093, 115.5446, 596.9338, 12.88429, 3410.069]
RELEASED_FITS = [1.360693e-08, 2.390484e-05, 0.02253803, 4.517835, 0.0005343796, 2306.031]


def tensor(array: NDArray) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))


def fits() -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(3)
    joints = rng.normal(0, 0.4, (6, 49, 3))
    size = np.array([0.002, 0.02, 0.1, 0.3, 0.05, 1.0])[:, None, None]
    seen = 0.8 * joints[..., :2] + size * rng.normal(size=(6, 49, 2))
    confidence = rng.random((6, 49, 1))
    confidence[4, 25:] *= rng.random((24, 1)) > 0.5
    return tensor(joints), tensor(np.concatenate([seen, confidence], -1)).flatten(1)


@pytest.mark.parametrize(
    ("terms", "expected", "rel"),
    [
        (SPIN, SPIN_FITS, 1e-4),  # float32 at a focal length of 5000 pixels; the first is 0.1 px
        (RELEASED, RELEASED_FITS, 1e-3),  # the same, and the errors enter to the fourth power
    ],
)
def test_errors_of_fits(terms, expected, rel):
    joints, keypoints = fits()
    assert terms.fit_error(joints, keypoints).tolist() == pytest.approx(expected, rel=rel)


def people() -> dict[str, Tensor]:
    rng = np.random.default_rng(1)
    joints = rng.normal(0, 0.4, (6, 49, 3))
    camera = np.column_stack([rng.uniform(0.6, 1.1, 6), rng.normal(0, 0.1, (6, 2))])
    keypoints = rng.normal(0, 0.5, (6, 49, 3))
    keypoints[..., 2] = rng.random((6, 49)) * (rng.random((6, 49)) > 0.3)
    true = rng.normal(0, 0.4, (6, 24, 4))
    true[..., 3] = rng.random((6, 24)) > 0.2
    has = np.array([1, 0, 1, 1, 0, 1])
    return {
        "joints": tensor(joints).requires_grad_(),
        "camera": tensor(camera),
        "keypoints": tensor(keypoints).flatten(1),
        "true": tensor(true * has[:, None, None]).flatten(1),
        "has": torch.from_numpy(has.nonzero()[0]),
    }


def test_released_keypoints_and_joints():
    some = people()
    seen = project(some["joints"], some["camera"])
    made = {
        "keypoints": RELEASED.keypoints(seen, some["keypoints"]),
        "joints": RELEASED.joints(some["joints"][some["has"]], some["true"][some["has"]]),
    }
    expected = {
        "keypoints": (10.00501, [-0.1853036, -0.006975653, 0.001469226], 2.48555),
        "joints": (49.54535, [1.315303, -0.7313806, 0.08951581], 20.463),
    }
    for name, (value, first, norm) in expected.items():
        (gradient,) = torch.autograd.grad(300 * made[name], some["joints"])
        # 2e-6: recorded in float32 with seven digits; 1e-5 for single differences.
        assert 300 * float(made[name].detach()) == pytest.approx(value, rel=2e-6)
        assert float(gradient.norm()) == pytest.approx(norm, rel=2e-6)
        assert gradient[0, 40].tolist() == pytest.approx(first, rel=1e-5)


def test_people_without_keypoints_and_joints_have_no_loss():
    some = people()
    seen = project(some["joints"], some["camera"])
    for terms in (SPIN, RELEASED):
        nothing = terms.keypoints(seen, some["keypoints"] * 0)
        nothing = nothing + terms.joints(some["joints"][:0], some["true"][:0])
        (gradient,) = torch.autograd.grad(nothing, some["joints"], retain_graph=True)
        assert nothing.item() == 0
        assert not gradient.any()


def test_keypoints_and_joints_of_spin_against_loops():
    rng = np.random.default_rng(0)
    pred, true = rng.normal(size=(3, 49, 2)), rng.normal(size=(3, 49, 3))
    true[..., 2] = rng.random((3, 49))
    total = sum(
        true[n, j, 2] * ((pred[n, j] - true[n, j, :2]) ** 2).sum()
        for n in range(3)
        for j in range(25, 49)
    )
    made = SPIN.keypoints(torch.tensor(pred), torch.tensor(true).flatten(1))
    assert float(made) == pytest.approx(total / (3 * 49 * 2))

    points, joints = rng.normal(size=(3, 49, 3)), rng.normal(size=(3, 24, 4))
    has, total = [0, 2], 0.0
    for n in has:
        mine, theirs = points[n, 25:], joints[n, :, :3]
        mine, theirs = mine - (mine[2] + mine[3]) / 2, theirs - (theirs[2] + theirs[3]) / 2
        total += (joints[n, :, 3:] * (mine - theirs) ** 2).sum()
    made = SPIN.joints(torch.tensor(points[has]), torch.tensor(joints[has]).flatten(1))
    assert float(made) == pytest.approx(total / (2 * 24 * 3))
