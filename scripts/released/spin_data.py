"""nkolot/SPIN: a person as the loader gives it, for the same draws of the augmentation."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image

from datasets import crops, ihmr
from datasets.crops import View
from scripts.released.clones import Clone
from scripts.released.lines import Lines, rms
from scripts.released.spin import TURNS, ihmr_images, matrices, write_body
from scripts.released.spin_clone import load, open_clone, running


def samples(root: Path | None, work: Path, lines: Lines) -> None:
    """A person as the loader gives it: as it is, mirrored, and turned, mirrored and scaled."""
    clone, folder = open_clone(root), write_body(work)
    dataset, config = load(clone, "datasets.base_dataset"), load(clone, "config")
    config.DATASET_FILES[1]["h36m"] = str(folder / "h36m_train.npz")
    found = ihmr_images(folder)
    config.DATASET_FOLDERS["h36m"] = str(found)
    people = ihmr.read_people(folder / "h36m_train.npz", found)
    with running(clone):
        theirs = dataset.BaseDataset(None, "h36m", is_train=True)
    for view in TURNS:
        item = released_item(clone, theirs, view)
        own = ihmr.split_target(torch.from_numpy(ihmr.target(people, 0, view))[None])
        what = "a person" if view == View() else "mirrored"
        what = f"{what}, turned by 25 degrees, scaled by 1.15" if view.rotation else what
        true = matrices(item["pose"][None]).flatten(1)
        lines.add(f"loader, {what}: pose", own["pose"], true, 1e-5, "")
        lines.add(f"loader, {what}: 3-D joints", own["joints"], item["pose_3d"], 1e-5, "m")
        lines.add(
            f"loader, {what}: keypoints in the crop",
            own["keypoints"],
            item["keypoints"],
            1e-5,
            "of 2",
            deviation="Keypoints",
            bound=4 / 224,
        )
        image = crops.crop(read_image(people, 0), people.center[0], people.scale[0], view, 224)
        planes = (image.transpose(2, 0, 1) / 255 - MEAN) / STD
        name = f"loader, {what}: image, rms"
        options = {"deviation": "Crop", "bound": 0.25}
        lines.add(name, rms(planes, item["img"]), 0.0, 1e-5, "std", **options)


MEAN, STD = (np.array(x)[:, None, None] for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


def read_image(people: ihmr.People, row: int) -> np.ndarray:
    return np.array(Image.open(people.images / str(people.imgname[row])).convert("RGB"))


def released_item(clone: Clone, dataset: Any, view: View) -> dict:
    drawn = (int(view.flip), np.array(view.gain), view.rotation, view.scale)
    with running(clone), mock.patch.object(dataset, "augm_params", return_value=drawn):
        return dataset[0]


CHECKS = (samples,)
