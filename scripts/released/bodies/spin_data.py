"""nkolot/SPIN: a person as the loader returns it, for the same random augmentation."""

from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image

from datasets import crops, ihmr
from datasets.crops import View
from scripts.released.bodies.spin import VIEWS, ihmr_images, matrices, spin_clone, write_body
from scripts.released.inputs import Quantities, rms


def samples(root: Path, work: Path) -> Quantities:
    """A person unchanged, mirrored, and turned, mirrored and scaled."""
    clone, folder = spin_clone(root), write_body(work)
    dataset, config = clone.load("datasets.base_dataset"), clone.load("config")
    config.DATASET_FILES[1]["h36m"] = str(folder / "h36m_train.npz")
    found = ihmr_images(folder)
    config.DATASET_FOLDERS["h36m"] = str(found)
    people = ihmr.read_people(folder / "h36m_train.npz", found)
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


MEAN, STD = (np.array(x)[:, None, None] for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


def read_image(people: ihmr.People, row: int) -> np.ndarray:
    return np.array(Image.open(people.images / str(people.imgname[row])).convert("RGB"))
