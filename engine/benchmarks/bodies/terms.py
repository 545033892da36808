"""What keypoints and 3-D joints cost, and which fits are good: SPIN's way, and MMHuman3D's.

    SPIN          c |e|^2, the mean over all joints;  a fit: mean of c^2 rho(pixels) < 100
    MMHuman3D     c rho(e^2), the mean over the coordinates of joints with c > 0;
                  a fit: sum of c rho(e^2) < 10, where the crop has side 2

with the confidence c and Geman and McClure's rho(x) = s^2 x^2 / (s^2 + x^2). MMHuman3D's is the
released code of the paper; its rho(e^2) is of order e^4 for small errors.

N: people. Keypoints are (N, 147), 49 x (x, y, confidence), the crop's sides at -1 and 1; 3-D joints
(N, 96), 24 x (x, y, z, confidence). Of the 49 joints the first 25 are OpenPose's.
"""

import torch
from torch import Tensor

from models.smpl import FOCAL, IMAGE

GROUND_TRUTH = slice(25, 49)
HIPS = slice(2, 4)  # among the 24; their middle is the pelvis
# Joints that no fit is judged by: OpenPose's neck and hips, and the hips of ground truth.
IGNORED = [1, 9, 12, 27, 28]


class Spin:
    """SPIN's terms.

    Arguments:
        good_fit: a fit with a smaller error counts, pixels^2 of a 224 px crop.
        fit_robust: where its errors level off, pixels.
    """

    def __init__(self, good_fit: float, fit_robust: float):
        self.good_fit, self.fit_robust = good_fit, fit_robust

    def keypoints(self, pred: Tensor, target: Tensor) -> Tensor:
        """(N, 49, 2), (N, 147) -> (). The mean is over all 49 joints, OpenPose's add nothing."""
        true = target.unflatten(1, (49, 3))
        return (_counted(true[..., 2:]) * (pred - true[..., :2]).square()).mean()

    def joints(self, pred: Tensor, target: Tensor) -> Tensor:
        """About the pelvis, of people who have joints: (N, 49, 3), (N, 96) -> ()."""
        if not len(pred):
            return pred.sum() * 0
        error, weight = _about_the_pelvis(pred, target)
        return (weight * error.square()).mean()

    def fit_error(self, joints: Tensor, keypoints: Tensor) -> Tensor:
        """(N, 49, 3), (N, 147) -> (N,), pixels^2, with the camera that suits each best."""
        error, confidence = reprojection(joints, keypoints)
        robust = geman_mcclure(error, self.fit_robust).sum(-1)
        return (confidence.square() * robust).mean(1)


class Released:
    """MMHuman3D's terms: a pixel is 2 / 223 there.

    Arguments:
        robust: s of keypoints and joints.
        good_fit: a fit with a smaller error counts.
        fit_robust: s of its error.
    """

    def __init__(self, robust: float, good_fit: float, fit_robust: float):
        self.robust, self.good_fit, self.fit_robust = robust, good_fit, fit_robust

    def keypoints(self, pred: Tensor, target: Tensor) -> Tensor:
        """(N, 49, 2), (N, 147) -> (). The mean is over OpenPose's joints, too; they add nothing."""
        true = target.unflatten(1, (49, 3))
        # predictions start at the crop's middle, keypoints at its corner: half a pixel apart
        error = (IMAGE * (pred - true[..., :2]) - 1) / (IMAGE - 1)
        return self._mean(error, _counted(true[..., 2:]), true[..., 2:])

    def joints(self, pred: Tensor, target: Tensor) -> Tensor:
        """About the pelvis, of people who have joints: (N, 49, 3), (N, 96) -> ()."""
        error, confidence = _about_the_pelvis(pred, target)
        return self._mean(error, confidence, confidence)

    def fit_error(self, joints: Tensor, keypoints: Tensor) -> Tensor:
        """(N, 49, 3), (N, 147) -> (N,), with the camera that suits each best."""
        error, confidence = reprojection(joints, keypoints)
        square = (error * 2 / (IMAGE - 1)).square()
        return (confidence * geman_mcclure(square, self.fit_robust).sum(-1)).sum(1)

    def _mean(self, error: Tensor, weight: Tensor, confidence: Tensor) -> Tensor:
        """(N, J, D), (N, J, 1), (N, J, 1) -> (): over what is confident."""
        total = (weight * geman_mcclure(error.square(), self.robust)).sum()
        return total / ((confidence > 0).sum() * error.shape[-1]).clamp(min=1)


def geman_mcclure(x: Tensor, scale: float) -> Tensor:
    """x^2 where it is small, scale^2 where it is large."""
    return scale**2 * x.square() / (scale**2 + x.square())


def reprojection(joints: Tensor, keypoints: Tensor) -> tuple[Tensor, Tensor]:
    """How far fits are from their keypoints, (N, 49, 3), (N, 147) -> pixels (N, 49, 2), and the
    confidence (N, 49), zero for the ignored joints.

    With f (X + t) = x (Z + t_z), the camera's position t is a linear least-squares problem over the
    ground-truth joints, the ignored ones included.
    """
    true = keypoints.unflatten(1, (49, 3))
    pixels, confidence = true[..., :2] * IMAGE / 2, true[..., 2].clone()
    p, q, w = joints[:, GROUND_TRUTH], pixels[:, GROUND_TRUTH], confidence[:, GROUND_TRUTH]
    zero, one = torch.zeros_like(w), torch.full_like(w, FOCAL)
    rows = [torch.stack([one, zero, -q[..., 0]], -1), torch.stack([zero, one, -q[..., 1]], -1)]
    values = [q[..., i] * p[..., 2] - FOCAL * p[..., i] for i in range(2)]
    weight = w.sqrt().repeat(1, 2)[..., None]
    matrix = (weight * torch.cat(rows, 1)).double()  # (N, 48, 3)
    value = (weight * torch.cat(values, 1)[..., None]).double()
    # a person without keypoints has no camera: the small ridge keeps the system solvable
    ridge = 1e-6 * torch.eye(3, dtype=torch.float64, device=joints.device)
    position = torch.linalg.solve(matrix.mT @ matrix + ridge, matrix.mT @ value).to(joints)
    points = joints + position.mT
    confidence[:, IGNORED] = 0
    return FOCAL * points[..., :2] / points[..., 2:] - pixels, confidence


def _counted(confidence: Tensor) -> Tensor:
    """(N, 49, 1) -> the same, zero for OpenPose's joints."""
    counted = confidence.clone()
    counted[:, : GROUND_TRUTH.start] = 0
    return counted


def _about_the_pelvis(pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(N, 49, 3), (N, 96) -> the errors (N, 24, 3), the confidence (N, 24, 1)."""
    pred, true = pred[:, GROUND_TRUTH], target.unflatten(1, (24, 4))
    points, confidence = true[..., :3], true[..., 3:]
    pred = pred - pred[:, HIPS].mean(1, keepdim=True)
    points = points - points[:, HIPS].mean(1, keepdim=True)
    return pred - points, confidence
