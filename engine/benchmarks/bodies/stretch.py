"""Stretch predicted poses about the mean pose: can any longer or shorter pose be better?

    R' = M exp(s log(M^T R))        for each joint; M: its rotation in the mean pose, s: the stretch

Balancing by Theorem 1 stretches predictions away from the mean label. Where no s improves the
balanced error, rare poses are wrong in their direction, not in their length, and no loss of this
family can help on these features. The root keeps its rotation: it is the camera's view.

N: people; predictions are (N, 229), see task.py.
"""

from pathlib import Path

import numpy as np
import roma
import torch
from numpy.typing import NDArray

from models.smpl import mean_rotations

POSE = 216


class Stretch:
    """(N, 229) -> (N, 229), with the joints' rotations stretched by s.

    Arguments:
        mean: smpl_mean_params.npz.
        stretch: s; 1 is the identity, 0 the mean pose.
    """

    def __init__(self, mean: str | Path, stretch: float):
        self.mean = mean_rotations(mean)  # (24, 3, 3)
        self.stretch = stretch

    def __call__(self, pred: NDArray) -> NDArray:
        rotations = torch.from_numpy(pred[:, :POSE]).double().unflatten(1, (24, 3, 3))
        mean = self.mean.double()
        away = roma.rotmat_to_rotvec(mean.mT @ rotations)  # (N, 24, 3)
        stretched = mean @ roma.rotvec_to_rotmat(self.stretch * away)
        stretched[:, 0] = rotations[:, 0]
        return np.concatenate([stretched.flatten(1).numpy(), pred[:, POSE:]], 1, dtype=pred.dtype)
