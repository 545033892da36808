"""The people of one of SPIN's npz files, and the fits that stand in for their poses.

An npz holds N people: imgname (N,), center (N, 2), scale (N,) = box / 200, and of the following
what the dataset has: part (N, 24, 3) and openpose (N, 25, 3) keypoints, S (N, 24, 4) joints in
metres, pose (N, 72) axis-angle, shape (N, 10), has_smpl (N,), gender (N,) m or f. A fits file is
(N, 82): pose and shape of the same people, estimated. What is missing is zero.

A file may have several names, as SPIN and MMHuman3D have them; the first that exists is read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import roma
import torch
from numpy.typing import NDArray

from datasets.io.arrays import AGAIN, BROKEN, MAX_BYTES, check_npz, named, read_npy
from datasets.io.strings import read_array

GENDERS = {"m": 0, "f": 1}
UNKNOWN = 2
NUMBERS = {
    **{"center": (2,), "scale": (), "part": (24, 3), "openpose": (25, 3), "S": (24, 4)},
    **{"pose": (72,), "shape": (10,), "has_smpl": ()},
}
Names = str | Path | Sequence[str | Path]


class People(NamedTuple):
    """The checked content of one npz, and where its images are."""

    npz: Path
    images: Path
    no_fits: tuple[Path, ...]  # where fits were looked for in vain
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
    """One npz and its fits, checked: keys, shapes, finite values, gender letters, rows."""
    path = first_of(npz)
    if path is None:
        raise FileNotFoundError(
            f"{_listed(npz)}: no such file. Fetch SPIN's dataset extras, or leave this set out: "
            "dataset.only=[...]"
        )
    raw = _read(path, max_bytes)
    count = len(raw["imgname"])
    arrays = {}
    for key, width in NUMBERS.items():
        array = raw.get(key, np.zeros((count, *width), np.float32))
        if array.shape != (count, *width):
            raise ValueError(f"{path}: {key} has shape {array.shape}, expected {(count, *width)}.")
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{path}: {key} has type {array.dtype}, expected numbers.")
        arrays[key] = array.astype(np.float32)
        if not np.isfinite(arrays[key]).all():
            raise ValueError(f"{path}: {key} holds NaN or infinite numbers.")
    if count == 0 or not (arrays["scale"] > 0).all():
        raise ValueError(f"{path}: expected people with boxes of positive scale, got {count} rows.")
    has_smpl = arrays["has_smpl"] > 0 if "has_smpl" in raw else np.full(count, "pose" in raw)
    pose, shape, has_fit = arrays["pose"], arrays["shape"], np.zeros(count, bool)
    found = None if fits is None else first_of(fits)
    if found is not None:
        fitted = read_fits(found, count, path, max_bytes)
        has_fit = ~has_smpl
        pose = np.where(has_fit[:, None], fitted[:, :72], pose)
        shape = np.where(has_fit[:, None], fitted[:, 72:], shape)
    flags = [has_smpl, has_fit, np.full(count, "S" in raw), _genders(raw, path, count)]
    vectors = torch.from_numpy(np.ascontiguousarray(pose, np.float32)).reshape(count, 24, 3)
    return People(
        path,
        Path(folder),
        () if fits is None or found is not None else tuple(_paths(fits)),
        raw["imgname"],
        arrays["center"],
        arrays["scale"],
        np.concatenate([arrays["openpose"], arrays["part"]], 1),
        arrays["S"],
        roma.rotvec_to_rotmat(vectors).numpy(),
        np.ascontiguousarray(shape, np.float32),
        np.stack(flags, 1).astype(np.float32),
    )


def pose_table(sets: Mapping[str, People]) -> str:
    """A line for each set: how many people it has, and where their poses are from."""
    lines = ["set             people  pose in npz  pose from fits  no pose"]
    for name, people in sets.items():
        true, fitted = (int(n) for n in people.flags[:, :2].sum(0))
        none = int((~people.has_pose).sum())
        note = f"  no fits at {_listed(people.no_fits)}" if none and people.no_fits else ""
        total = len(people.imgname)
        lines.append(f"{name:14} {total:7} {true:12} {fitted:15} {none:8}{note}")
    return "\n".join(lines)


def check_poses(sets: Mapping[str, People]) -> None:
    """A set of training people of which nobody has a pose though fits are named, or if all sets are
    such, is an error: the pose term would be silently empty.
    """
    without = [name for name, people in sets.items() if not people.has_pose.any()]
    missing = [name for name in without if sets[name].no_fits]
    if not missing and len(without) < len(sets):
        return
    which = missing or without
    reasons = [
        f"{name}: {sets[name].npz} has no SMPL parameters (pose, shape), as SPIN's own scripts "
        f"write it, and fits were looked for at {_listed(sets[name].no_fits) or 'no place'}."
        for name in which
    ]
    only = [name for name in sets if name not in without]
    advice = f"Fetch SPIN's static fits (static_fits/{which[0]}_fits.npy)"
    if only:
        advice += (
            f", leave the set out (dataset.only=[{','.join(only)}]), or learn from its keypoints "
            f"alone (dataset.train.{which[0]}.fits=null)"
        )
    raise FileNotFoundError(
        "nobody has a pose in " + ", ".join(which) + ".\n" + "\n".join(reasons) + f"\n{advice}.\n"
        + pose_table(sets)
    )  # fmt: skip


def read_names(npz: Names, max_bytes: int = MAX_BYTES) -> list[str]:
    """The images that an npz names; none where there is no file."""
    path = first_of(npz)
    return [] if path is None else _read(path, max_bytes)["imgname"].tolist()


def read_fits(path: Path, count: int, npz: Path, max_bytes: int = MAX_BYTES) -> NDArray:
    """(N, 82) pose and shape, row by row of the npz."""
    fits = read_npy(path, max_bytes)
    if fits.shape != (count, 82) or not np.isfinite(fits).all():
        raise ValueError(
            f"{path}: expected finite fits ({count}, 82), one row for each of {npz}, got "
            f"{fits.shape}; the two files do not belong together."
        )
    return fits.astype(np.float32)


def first_of(names: Names) -> Path | None:
    """The first of these files that exists."""
    return next((path for path in _paths(names) if path.is_file()), None)


def _paths(names: Names) -> list[Path]:
    return [Path(names)] if isinstance(names, str | Path) else [Path(name) for name in names]


def _listed(names: Names) -> str:
    return " or ".join(map(str, _paths(names)))


def _read(path: Path, max_bytes: int) -> dict[str, NDArray]:
    """The arrays that are known here; what else the file holds is not looked at."""
    try:
        check_npz(path, max_bytes, strings=True)
        with np.load(path, allow_pickle=False) as file:
            keys = set(file.files)
            known = keys & {"imgname", "gender", *NUMBERS}
            raw = {key: read_array(file, key) for key in known}
    except (*BROKEN, AttributeError) as error:
        raise named(path, "an npz of plain arrays", error, AGAIN) from error
    missing = {"imgname", "center", "scale"} - set(raw)
    if missing:
        hint = " This is MMHuman3D's HumanData; take SPIN's." if "image_path" in keys else ""
        raise ValueError(
            f"{path}: expected SPIN's imgname, center, scale; missing {sorted(missing)}.{hint}"
        )
    if raw["imgname"].ndim != 1 or raw["imgname"].dtype.kind not in "SU":
        raise ValueError(
            f"{path}: expected imgname (N,) of strings, got {raw['imgname'].dtype} "
            f"{raw['imgname'].shape}."
        )
    return {
        key: array.astype(str) if array.dtype.kind == "S" else array for key, array in raw.items()
    }


def _genders(raw: Mapping[str, NDArray], path: Path, count: int) -> NDArray:
    letters = raw.get("gender", np.full(count, ""))
    strange = sorted(set(map(str, np.unique(letters))) - {*GENDERS, ""})
    if letters.shape != (count,) or strange:
        raise ValueError(f"{path}: gender must be m or f for each of {count}, got {strange[:3]}.")
    return np.array([GENDERS.get(str(letter), UNKNOWN) for letter in letters])
