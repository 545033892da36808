"""SPIN's clone, and what its code needs today: SciPy's old images, smplx's old names."""

import contextlib
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import scipy
import smplx.body_models
import torch
from PIL import Image
from smplx.utils import SMPLOutput
from torch import nn

from scripts.released.clones import Clone


def bytescale(array: np.ndarray) -> Image.Image:
    """What SciPy 1.2 made of an array: bytes as they are, other numbers stretched to 0..255."""
    if array.dtype != np.uint8:
        low, high = array.min(), array.max()
        array = (array - low) * (255.0 / ((high - low) or 1)) + 0.5
        array = array.clip(0, 255).astype(np.uint8)
    return Image.fromarray(array)


def old_scipy() -> ModuleType:
    """scipy.misc as SPIN's imutils needs it: images through PIL."""
    misc: Any = ModuleType("scipy.misc")
    bilinear = Image.Resampling.BILINEAR
    misc.imrotate = lambda array, angle: np.array(bytescale(array).rotate(angle, resample=bilinear))
    misc.imresize = lambda array, size: np.array(bytescale(array).resize(size[::-1], bilinear))
    return misc


class NoPrior(nn.Module):
    """SMPLify's pose prior, which the reprojection error does not see."""

    def __init__(self, **options: Any):
        super().__init__()

    def forward(self, pose: torch.Tensor, betas: torch.Tensor) -> torch.Tensor:
        return pose.new_zeros(len(pose))


def open_clone(root: Path | None) -> Clone:
    prior: Any = ModuleType("smplify.prior")
    prior.MaxMixturePrior = NoPrior
    stand_ins = ["torchgeometry", "utils.renderer", "utils.part_utils", "tensorboardX"]
    clone = Clone(
        root, stand_ins=stand_ins, given={"scipy.misc": old_scipy(), prior.__name__: prior}
    )
    return clone


@contextlib.contextmanager
def running(clone: Clone) -> Any:
    with (
        clone.running(),
        mock.patch.object(scipy, "misc", old_scipy(), create=True),
        mock.patch.object(smplx.body_models, "ModelOutput", SMPLOutput, create=True),
    ):
        yield


def load(clone: Clone, name: str) -> Any:
    with running(clone):
        return clone.load(name)
