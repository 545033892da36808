"""People of SPIN's npz files, and the fits that replace missing poses.

An npz holds N people: imgname (N,), center (N, 2), scale (N,) = box / 200, and optionally part
(N, 24, 3) and openpose (N, 25, 3) keypoints, S (N, 24, 4) joints in metres, pose (N, 72)
axis-angle, shape (N, 10), has_smpl (N,), gender (N,) m or f. A missing array is zero. A fits file
is (N, 82): estimated pose and shape of the same people.

A file may have several names, those of SPIN and MMHuman3D; the first that exists is read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import roma
import torch
from numpy.typing import NDArray

from datasets.io.arrays import numbers, read_npy, read_npz
from datasets.io.files import MAX_BYTES, outside

GENDERS = {"m": 0, "f": 1}
UNKNOWN = 2
NUMBERS = {
    **{"center": (2,), "scale": (), "part": (24, 3), "openpose": (25, 3), "S": (24, 4)},
    **{"pose": (72,), "shape": (10,), "has_smpl": ()},
}
Names = str | Path | Sequence[str | Path]


class People(NamedTuple):
    """Checked content of one npz, and the folder of its images."""

    npz: Path
    images: Path
    missing_fits: str  # names of a fits file that does not exist
    imgname: NDArray
    center: NDArray
    scale: NDArray
    keypoints: NDArray  # (N, 49, 3)
    joints: NDArray  # (N, 24, 4)
    rotations: NDArray  # (N, 24, 3, 3)
    shape: NDArray  # (N, 10)
    flags: NDArray  # (N, 4): has_smpl, has_fit, has_joints, gender

    def take(self, rows: NDArray) -> "People":
        return People(*self[:3], *(array[rows] for array in self[3:]))

    @property
    def has_pose(self) -> NDArray:
        return self.flags[:, :2].max(1) > 0


def read_people(
    npz: Names, folder: str | Path, fits: Names | None = None, max_bytes: int = MAX_BYTES
) -> People:
    """Read one npz and its fits, and check keys, shapes, finite values and genders."""
    path = first_of(npz)
    if path is None:
        advice = "Download SPIN's dataset extras, or leave this set out: dataset.only=[...]"
        raise FileNotFoundError(f"{_listed(npz)}: no such file. {advice}")
    raw = _read(path, max_bytes)
    count = len(raw["imgname"])
    arrays = {}
    for key, width in NUMBERS.items():
        given = raw.get(key, np.zeros((count, *width)))
        arrays[key] = numbers(given, (count, *width), f"{path}: {key}")
    if count == 0 or not (arrays["scale"] > 0).all():
        raise ValueError(f"{path}: expected people with boxes of positive scale, got {count} rows.")
    has_smpl = arrays["has_smpl"] > 0 if "has_smpl" in raw else np.full(count, "pose" in raw)
    pose, shape, has_fit = arrays["pose"], arrays["shape"], np.zeros(count, bool)
    found = None if fits is None else first_of(fits)
    if found is not None:
        fitted = numbers(read_npy(found, max_bytes), (count, 82), f"{found}: the fits of {path}")
        has_fit = ~has_smpl
        pose = np.where(has_fit[:, None], fitted[:, :72], pose)
        shape = np.where(has_fit[:, None], fitted[:, 72:], shape)
    letters = raw.get("gender", np.full(count, "")).astype(str)
    strange = sorted(set(letters.ravel().tolist()) - {*GENDERS, ""})
    if letters.shape != (count,) or strange:
        raise ValueError(f"{path}: gender must be m or f for each of {count}, got {strange[:3]}.")
    gender = [GENDERS.get(letter, UNKNOWN) for letter in letters.tolist()]
    vectors = torch.from_numpy(np.ascontiguousarray(pose)).reshape(count, 24, 3)
    return People(
        npz=path,
        images=Path(folder),
        missing_fits="" if fits is None or found is not None else _listed(fits),
        imgname=raw["imgname"],
        center=arrays["center"],
        scale=arrays["scale"],
        keypoints=np.concatenate([arrays["openpose"], arrays["part"]], 1),
        joints=arrays["S"],
        rotations=roma.rotvec_to_rotmat(vectors).numpy(),
        shape=np.ascontiguousarray(shape),
        flags=np.stack(
            [has_smpl, has_fit, np.full(count, "S" in raw), gender], 1, dtype=np.float32
        ),
    )


def pose_table(sets: Mapping[str, People]) -> str:
    """Return a table of the sets: how many people each has, and the source of their poses."""
    lines = ["set             people  pose in npz  pose from fits  no pose"]
    for name, people in sets.items():
        true, fitted = (int(n) for n in people.flags[:, :2].sum(0))
        none = int((~people.has_pose).sum())
        note = f"  no fits at {people.missing_fits}" if none and people.missing_fits else ""
        total = len(people.imgname)
        lines.append(f"{name:14} {total:7} {true:12} {fitted:15} {none:8}{note}")
    return "\n".join(lines)


def check_poses(sets: Mapping[str, People]) -> None:
    """Refuse training sets without any pose, whose pose loss would be empty.

    With fits=null a set may do without, unless no set has a pose.
    """
    without = [name for name, people in sets.items() if not people.has_pose.any()]
    others = [name for name in sets if name not in without]
    which = [name for name in without if sets[name].missing_fits or not others]
    if not which:
        return
    advice = f"Download SPIN's static fits (static_fits/{which[0]}_fits.npy)"
    if others:
        advice += f", leave the set out (dataset.only=[{','.join(others)}]), or learn from its "
        advice += f"keypoints only (dataset.train.{which[0]}.fits=null)"
    files = ", ".join(str(sets[name].npz) for name in which)
    title = f"No person has a pose in {', '.join(which)}: no SMPL parameters (pose, shape) in"
    raise FileNotFoundError(f"{title} {files}, and no fits. {advice}.\n{pose_table(sets)}")


def read_names(npz: Names, max_bytes: int = MAX_BYTES) -> list[str]:
    """Return the image names of an npz; none if there is no file."""
    path = first_of(npz)
    return [] if path is None else _read(path, max_bytes)["imgname"].tolist()


def first_of(names: Names) -> Path | None:
    """Return the first of these files that exists."""
    return next((path for path in _paths(names) if path.is_file()), None)


def _paths(names: Names) -> list[Path]:
    return [Path(names)] if isinstance(names, str | Path) else [Path(name) for name in names]


def _listed(names: Names) -> str:
    return " or ".join(map(str, _paths(names)))


def _read(path: Path, max_bytes: int) -> dict[str, NDArray]:
    """Read the arrays named above; others are ignored."""
    raw = read_npz(path, max_bytes, only={"imgname", "gender", "image_path", *NUMBERS})
    if missing := sorted({"imgname", "center", "scale"} - set(raw)):
        hint = " This is MMHuman3D's HumanData; use SPIN's." if "image_path" in raw else ""
        raise ValueError(
            f"{path}: expected SPIN's imgname, center, scale; missing {missing}.{hint}"
        )
    names = raw["imgname"]
    if names.ndim != 1 or names.dtype.kind not in "SU":
        raise ValueError(f"{path}: expected imgname (N,) of strings, got {names.dtype}.")
    names = names.astype(str)
    if strange := list(filter(outside, names.tolist())):
        raise ValueError(f"{path}: expected images below the folder, got imgname {strange[0]!r}.")
    return raw | {"imgname": names}
