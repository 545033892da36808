"""Losses of keypoints and 3-D joints, and the criterion for good fits, of SPIN and of MMHuman3D.

    SPIN          loss: mean of c |e|^2 over all joints;  good fit: mean of c^2 rho(pixels) < 100
    MMHuman3D     loss: mean of c rho(e^2) over the coordinates of joints with c > 0;
                  good fit: sum of c rho(e^2) < 10, where the crop has side 2

with the confidence c and Geman and McClure's rho(x) = s^2 x^2 / (s^2 + x^2). MMHuman3D has the
released code of the paper; its rho(e^2) is of order e^4 for small errors.

Shapes: N people. Keypoints are (N, 147), 49 x (x, y, confidence), with the crop's sides at -1 and
1; 3-D joints are (N, 96), 24 x (x, y, z, confidence). The first 25 of the 49 joints are OpenPose's.
"""

import torch
from torch import Tensor

from models.smpl import FOCAL, IMAGE

GROUND_TRUTH = slice(25, 49)
HIPS = slice(2, 4)  # among the 24; their middle is the pelvis
# Joints excluded from the error of a fit: OpenPose's neck and hips, and the ground-truth hips.
IGNORED = [1, 9, 12, 27, 28]


class Spin:
    """SPIN's terms.

    Arguments:
        good_fit: fits with a smaller error are used, in pixels^2 of a 224 px crop.
        fit_robust: s of the error of a fit, in pixels.
    """

    def __init__(self, good_fit: float, fit_robust: float):
        self.good_fit, self.fit_robust = good_fit, fit_robust

    def keypoints(self, pred: Tensor, target: Tensor) -> Tensor:
        """(N, 49, 2), (N, 147) -> (). The mean is over 49 joints; OpenPose's have weight 0."""
        true = target.unflatten(1, (49, 3))
        confidence = true[..., 2:]
        weight = confidence.clone()
        weight[:, : GROUND_TRUTH.start] = 0
        return self.mean(self.offset(pred - true[..., :2]), weight, confidence)

    def joints(self, pred: Tensor, target: Tensor) -> Tensor:
        """Relative to the pelvis, of people with joints: (N, 49, 3), (N, 96) -> ()."""
        pred, true = pred[:, GROUND_TRUTH], target.unflatten(1, (24, 4))
        points, confidence = true[..., :3], true[..., 3:]
        pred = pred - pred[:, HIPS].mean(1, keepdim=True)
        points = points - points[:, HIPS].mean(1, keepdim=True)
        return self.mean(pred - points, confidence, confidence)

    def fit_error(self, joints: Tensor, keypoints: Tensor) -> Tensor:
        """(N, 49, 3), (N, 147) -> (N,), in pixels^2, with the best camera for each fit."""
        error, confidence = reprojection(joints, keypoints)
        robust = geman_mcclure(error, self.fit_robust).sum(-1)
        return (confidence.square() * robust).mean(1)

    def offset(self, error: Tensor) -> Tensor:
        """Errors of keypoints in the units of the loss."""
        return error

    def mean(self, error: Tensor, weight: Tensor, confidence: Tensor) -> Tensor:
        """Weighted mean of squares: (N, J, D), (N, J, 1), (N, J, 1) -> (); 0 without people."""
        return (weight * error.square()).mean() if len(error) else error.sum() * 0


class Released(Spin):
    """MMHuman3D's terms, in which a pixel is 2 / 223. robust: s of keypoints and joints."""

    def __init__(self, robust: float, good_fit: float, fit_robust: float):
        super().__init__(good_fit, fit_robust)
        self.robust = robust

    def fit_error(self, joints: Tensor, keypoints: Tensor) -> Tensor:
        error, confidence = reprojection(joints, keypoints)
        square = (error * 2 / (IMAGE - 1)).square()
        return (confidence * geman_mcclure(square, self.fit_robust).sum(-1)).sum(1)

    def offset(self, error: Tensor) -> Tensor:
        """Predictions are relative to the crop's centre, keypoints to its corner: half a pixel."""
        return (IMAGE * error - 1) / (IMAGE - 1)

    def mean(self, error: Tensor, weight: Tensor, confidence: Tensor) -> Tensor:
        """Mean over the coordinates with confidence."""
        total = (weight * geman_mcclure(error.square(), self.robust)).sum()
        return total / ((confidence > 0).sum() * error.shape[-1]).clamp(min=1)


def geman_mcclure(x: Tensor, scale: float) -> Tensor:
    """rho(x): x^2 for small x, scale^2 for large x."""
    return scale**2 * x.square() / (scale**2 + x.square())


def reprojection(joints: Tensor, keypoints: Tensor) -> tuple[Tensor, Tensor]:
    """Reprojection errors of fits in pixels (N, 49, 2), and the confidence (N, 49), 0 for ignored
    joints: (N, 49, 3), (N, 147).

    With f (X + t) = x (Z + t_z), the camera position t solves a linear least-squares problem over
    the ground-truth joints, the ignored ones included.
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
    # The small ridge keeps the system solvable for a person without keypoints.
    ridge = 1e-6 * torch.eye(3, dtype=torch.float64, device=joints.device)
    position = torch.linalg.solve(matrix.mT @ matrix + ridge, matrix.mT @ value).to(joints)
    points = joints + position.mT
    confidence[:, IGNORED] = 0
    return FOCAL * points[..., :2] / points[..., 2:] - pixels, confidence
