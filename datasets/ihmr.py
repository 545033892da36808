"""People and their poses: SPIN's npz files with static fits for training, 3DPW for the test.

A target is a vector of T numbers, the FIELDS one after the other; `split_target` separates them.
"""

import re
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datasets import crops
from datasets.io import images
from datasets.io.files import MAX_BYTES, MAX_PIXELS, manifest
from datasets.io.people import People, check_poses, pose_table, read_names, read_people

FIELDS = {
    "pose": 216,  # 24 rotation matrices
    "shape": 10,
    "keypoints": 147,  # 49 x (x, y, confidence), the crop's sides at -1 and 1
    "joints": 96,  # 24 x (x, y, z, confidence), metres
    "has_smpl": 1,
    "has_fit": 1,
    "has_joints": 1,
    "gender": 1,
}
Array = TypeVar("Array", NDArray, torch.Tensor)


def split_target(rows: Array) -> dict[str, Array]:
    """(N, T) -> {field: (N, its width)}."""
    ends = np.cumsum(list(FIELDS.values()))
    return {name: rows[:, end - FIELDS[name] : end] for name, end in zip(FIELDS, ends, strict=True)}


def plausible_shape(true: dict[str, torch.Tensor]) -> torch.Tensor:
    """(N, 10): the shapes of `split_target`, zero for implausible fits, as SPIN trains."""
    wild = (true["shape"].abs() > 3).any(1, keepdim=True) & (true["has_fit"] > 0)
    return torch.where(wild, 0, true["shape"])


class BodyDataset(Dataset):
    """{"input": (3, S, S) float32, "target": (T,) float32, "meta": {"index": i}}.

    Training samples a set by its probability and takes person i modulo its size; an epoch is as
    long as the largest set. `labels` (N, 216) are the rotations of one such epoch, NaN where a
    person has no pose.

    Arguments:
        split: train, val (held-out sequences of the training sets) or test.
        train: {name: {probability, npz, fits, images}}; npz and fits are a file or several names
            for it, fits null if there are none.
        test: {npz, images}.
        holdout: share of the training sequences in val; with 0 val is empty.
        mean, std: of the colours in [0, 1].
        turned: share of the augmented images that are rotated.
        one_warp: crop as MMHuman3D does.
        only: names of the training sets to use; by default all.
        augment: SPIN's augmentation; by default for the train split only.
        max_pixels, max_bytes: limits on an image and on the unpacked size of an npz.
    """

    def __init__(
        self,
        split: str,
        size: int,
        train: Mapping[str, Mapping[str, Any]],
        test: Mapping[str, Any],
        holdout: float,
        mean: Sequence[float],
        std: Sequence[float],
        turned: float,
        one_warp: bool,
        only: Sequence[str] | None = None,
        augment: bool | None = None,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ):
        if split not in ("train", "val", "test"):
            raise ValueError(f"Unknown split {split!r}; choose from train, val, test.")
        self.size, self.augment = size, split == "train" if augment is None else augment
        self.turned, self.one_warp, self.about = turned, one_warp, ""
        self.mean, self.std = (np.array(x, np.float32)[:, None, None] for x in (mean, std))
        self.mixed, self.max_pixels = split == "train", max_pixels
        if split == "test":
            self.sets = [read_people(test["npz"], test["images"], max_bytes=max_bytes)]
            _check_test(self.sets[0])
            self.probabilities = np.ones(1)
        else:
            names = list(train) if only is None else list(only)
            if set(names) - set(train) or not names:
                raise ValueError(f"only must name some of {list(train)}, got {names}.")
            chosen = {name: train[name] for name in names}
            people = {
                name: read_people(one["npz"], one["images"], one.get("fits"), max_bytes)
                for name, one in chosen.items()
            }
            check_poses(people)
            self.about, self.sets = pose_table(people), []
            for one in people.values():
                held = held_out(one.imgname, holdout)  # metrics need a pose
                self.sets.append(one.take(held & one.has_pose if split == "val" else ~held))
            shares = np.array([train[name]["probability"] for name in names], float)
            self.probabilities = shares / shares.sum()
        self.sizes = np.array([len(one.imgname) for one in self.sets])
        enough = self.sizes.any() or holdout == 0 if split == "val" else self.sizes.all()
        if not enough:
            empty = self.sets[int(self.sizes.argmin())].npz
            raise ValueError(f"{empty}: no people in split {split}; change holdout.")
        self.length = int(self.sizes.max() if self.mixed else self.sizes.sum())
        self.labels = self._labels()

    @staticmethod
    def fingerprint(
        content: bool,
        train: Mapping[str, Mapping[str, Any]],
        test: Mapping[str, Any],
        only: Sequence[str] | None = None,
        max_bytes: int = MAX_BYTES,
        **_: Any,
    ) -> str:
        """Return a digest of the images of the sets that are used."""
        sources = [test, *(train[name] for name in (train if only is None else only))]
        named = [(source["images"], read_names(source["npz"], max_bytes)) for source in sources]
        return manifest((f"{folder}/{name}" for folder, names in named for name in names), content)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        people, row = self._find(index, float(torch.rand(())) if self.mixed else 0.0)
        view = crops.random_view(self.turned) if self.augment else crops.View()
        return {
            "input": self._tensor(self._crop(people, row, view)),
            "target": torch.from_numpy(target(people, row, view)),
            "meta": {"index": index},
        }

    def image(self, index: int) -> NDArray:
        """(S, S, 3) uint8 RGB, not augmented."""
        return self._crop(*self._find(index, 0.0), crops.View())

    def _find(self, index: int, uniform: float) -> tuple[People, int]:
        """Return set and row of an item; `uniform` in [0, 1) chooses the training set."""
        if self.mixed:
            which = int(np.searchsorted(np.cumsum(self.probabilities)[:-1], uniform, side="right"))
            return self.sets[which], index % int(self.sizes[which])
        which = int(np.searchsorted(np.cumsum(self.sizes), index, side="right"))
        return self.sets[which], index - int(self.sizes[:which].sum())

    def _labels(self) -> NDArray:
        rng = np.random.default_rng(0)
        rows = np.full((self.length, 24, 3, 3), np.nan, np.float32)
        for index, row in enumerate(rows):
            people, person = self._find(index, rng.random())
            if people.flags[person, :2].any():
                row[:] = people.rotations[person]
        return rows.reshape(self.length, 216)

    def _crop(self, people: People, row: int, view: crops.View) -> NDArray:
        file = people.images / str(people.imgname[row])
        image = images.imdecode(images.read_bytes(file), file, max_pixels=self.max_pixels)
        box = people.center[row], people.scale[row]
        return crops.crop(image, *box, view, self.size, self.one_warp)

    def _tensor(self, image: NDArray) -> torch.Tensor:
        planes = image.transpose(2, 0, 1).astype(np.float32) / 255
        return torch.from_numpy((planes - self.mean) / self.std)


def target(people: People, row: int, view: crops.View) -> NDArray:
    """(T,) the labels of a person in a view."""
    center, scale = people.center[row], people.scale[row]
    parts = (
        crops.turn_pose(people.rotations[row], view),
        people.shape[row],
        crops.crop_keypoints(people.keypoints[row], center, scale, view),
        crops.turn_joints(people.joints[row], view),
        people.flags[row],
    )
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.float32)


def held_out(names: NDArray, share: float) -> NDArray:
    """(N,) whether each image belongs to a held-out sequence, by a hash of the sequence's name.

    A sequence is a folder and the common start of its images' names, up to the last number. In a
    set of single photographs, without sequences, images are held out.
    """
    keys = np.array([re.sub(r"[_.]?\d+\.\w+$", "", str(name)) for name in names])
    unique, inverse = np.unique(keys, return_inverse=True)
    if len(unique) < 20:
        unique, inverse = np.unique(names, return_inverse=True)
    chosen = np.array([zlib.crc32(str(key).encode()) % 1000 < 1000 * share for key in unique])
    return chosen[inverse]


def _check_test(people: People) -> None:
    if not people.has_pose.all():
        raise ValueError(f"{people.npz}: expected a pose for every person of the test set.")
    if len(np.unique(people.flags[:, 3])) == 1:
        found = f"all {len(people.imgname)} people have the same gender, unlike in 3DPW"
        advice = "Ground-truth meshes depend on it: check how the file was made."
        warnings.warn(f"{people.npz}: {found}. {advice}", stacklevel=3)
