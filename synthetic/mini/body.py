"""Free body of the mini IHMR, written as SMPL's files: SMPL_*.npz, joint regressors, mean pose.

body.npz holds MakeHuman's base mesh and rig with 2,400 vertices (CC0 1.0; docs/protocol.md says
how it was made). Numbers on it cannot be compared with those on SMPL.

V: vertices; J = 24 joints.
"""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.io.arrays import read_npz

FILE = Path(__file__).with_name("body.npz")
LENGTHS = {"template": 1e-4, "man": 1e-5, "shapedirs": 1e-5}  # metres per unit of the packed int16
SHARES = {"weights": 1e-4, "regressor": 1e-4}
PARENTS = [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21]
TOP = 21  # landmark at the top of the head, which smplx does not have
# Joint regressors as means of joints, or of the top of the head.
EXTRA = [[2], [1], [12], ["top"], [0], [16, 17], [6], [15], [15, "top"]]
H36M = [[0], [1], [4], [7], [2], [5], [8], [6], [12], [15], ["top"], [16], [18], [20], [17], [19]]
H36M += [[21]]


@cache
def body() -> dict[str, NDArray]:
    """Return template (V, 3), man (V, 3), shapedirs (V, 3, 10), all in metres, faces,
    weights (V, J), regressor (J, V) and landmarks (22,)."""
    arrays = read_npz(FILE)
    for name, unit in {**LENGTHS, **SHARES}.items():
        arrays[name] = arrays[name].astype(np.float32) * np.float32(unit)
    for name in SHARES:
        arrays[name] /= arrays[name].sum(1, keepdims=True)
    return arrays


def smpl_arrays(gender: str) -> dict[str, NDArray]:
    """Return the arrays of SMPL_<GENDER>.npz for neutral, male or female."""
    parts = body()
    side = {"neutral": 0, "male": 1, "female": -1}[gender]
    vertices = len(parts["template"])
    return {
        "v_template": parts["template"] + side * parts["man"],
        "shapedirs": parts["shapedirs"],
        "posedirs": np.zeros((vertices, 3, 207), np.float32),  # no pose-dependent bulging
        "J_regressor": parts["regressor"],
        "weights": parts["weights"],
        "kintree_table": np.array([PARENTS, range(24)], np.int64),
        "f": parts["faces"].astype(np.int64),
        "vertex_ids": parts["landmarks"][:TOP].astype(np.int64),
    }


def regressor(rows: list[list]) -> NDArray:
    """Return a regressor (R, V) whose rows are means of joints, or of the top of the head."""
    parts = body()
    top = np.eye(1, len(parts["template"]), int(parts["landmarks"][TOP]), dtype=np.float32)
    joints = {"top": top[0], **dict(enumerate(parts["regressor"]))}
    return np.stack([np.mean([joints[name] for name in row], 0) for row in rows])


def write_body(folder: Path, mean_pose: NDArray) -> None:
    """Write the body's files to `folder`; mean_pose (24, 3, 3) are the mean rotations."""
    for gender in ("neutral", "male", "female"):
        with (folder / f"SMPL_{gender.upper()}.npz").open("wb") as file:
            np.savez_compressed(file, **smpl_arrays(gender))  # pyright: ignore[reportArgumentType]
    np.save(folder / "J_regressor_extra.npy", regressor(EXTRA))
    np.save(folder / "J_regressor_h36m.npy", regressor(H36M))
    np.savez(
        folder / "smpl_mean_params.npz",
        pose=mean_pose[:, :, :2].reshape(144).astype(np.float32),
        shape=np.zeros(10, np.float32),
        cam=np.array([0.9, 0, 0], np.float32),
    )
