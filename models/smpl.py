"""SMPL: pose and shape to a posed mesh and its joints, through smplx and npz files only.

    vertices (N, V, 3) = skinning(template + shapes . beta, theta),    joints = regressor @ vertices

A folder holds SMPL_NEUTRAL.npz, SMPL_MALE.npz, SMPL_FEMALE.npz (made by scripts/prepare_smpl.py),
J_regressor_extra.npy and J_regressor_h36m.npy. Any mesh in that format works; a mesh other than
SMPL's needs `vertex_ids`, the vertices of its nose, eyes, ears, feet and finger tips.

N: bodies; V: vertices (6890 for SMPL); lengths in metres, the camera looks along +z, y is down.
"""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import roma
import smplx
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_matrix
from smplx.utils import Struct
from smplx.vertex_ids import vertex_ids as known_vertex_ids
from torch import Tensor, nn

from datasets.io.arrays import Call, Reader, numbers, read_npy, read_npz, value_of

KEYS = ("v_template", "shapedirs", "posedirs", "J_regressor", "weights", "kintree_table", "f")
JOINTS, SHAPES = 24, 10
FOCAL, IMAGE = 5000.0, 224.0  # SPIN's camera
SMPL_VERTICES = 6890
# smplx's selected vertices, in its order.
SELECTED = [
    *("nose", "reye", "leye", "rear", "lear", "LBigToe", "LSmallToe", "LHeel", "RBigToe"),
    *("RSmallToe", "RHeel", "lthumb", "lindex", "lmiddle", "lring", "lpinky", "rthumb", "rindex"),
    *("rmiddle", "rring", "rpinky"),
]
# SPIN's 49 joints among the 24 of the tree, the 21 selected vertices and the 9 of the extra
# regressor: first OpenPose's 25, then the 24 that ground truth is given for.
OPENPOSE = [24, 12, 17, 19, 21, 16, 18, 20, 0, 2, 5, 8, 1, 4, 7, *range(25, 35)]
GROUND_TRUTH = [8, 5, 45, 46, 4, 7, 21, 19, 17, 16, 18, 20, *range(47, 54), 24, 26, 25, 28, 27]
JOINT_MAP = OPENPOSE + GROUND_TRUTH
# The 14 joints of the H36M regressor that 3DPW is evaluated on.
EVALUATED = [6, 5, 4, 1, 2, 3, 16, 15, 14, 11, 12, 13, 8, 10]
# Python's objects and the classes of the arrays; Python 2 names the modules differently.
PACKAGES = ("chumpy", "scipy", "copyreg", "copy_reg", "builtins", "__builtin__")


class SMPL(nn.Module):
    """A body of one gender.

    Arguments:
        folder: the folder of its files.
        gender: neutral, male or female.
        joints_only: keep only the vertices that the joints depend on. The 49 joints are the same,
            at a fraction of the cost; training needs no vertices.
    """

    def __init__(self, folder: str | Path, gender: str = "neutral", joints_only: bool = False):
        super().__init__()
        self.folder = folder = Path(folder)
        arrays = read_body(folder / f"SMPL_{gender.upper()}.npz")
        vertices = len(arrays["v_template"])
        extra = read_regressor(folder / "J_regressor_extra.npy", 9, vertices)
        selected = arrays.pop("vertex_ids")
        if joints_only:
            used = (arrays["J_regressor"] != 0).any(0) | (extra != 0).any(0)
            used[selected] = True
            for key in ("v_template", "shapedirs", "posedirs", "weights"):
                arrays[key] = arrays[key][used]
            arrays["J_regressor"], extra = arrays["J_regressor"][:, used], extra[:, used]
            arrays["f"] = np.zeros((0, 3), np.int64)
            selected = (np.cumsum(used) - 1)[selected]
        self.triangles: NDArray = arrays["f"]
        with contextlib.redirect_stdout(io.StringIO()):  # smplx prints a warning about ten shapes
            self.body = smplx.SMPLLayer(
                "",
                data_struct=Struct(**arrays),
                vertex_ids=dict(zip(SELECTED, selected.tolist(), strict=True)),
                num_betas=SHAPES,
            )
        self.body.__dict__["parents"] = _Parents(self.body)  # hides the buffer of that name
        self.extra = nn.Buffer(torch.from_numpy(extra))
        self.joint_map = nn.Buffer(torch.tensor(JOINT_MAP), persistent=False)

    def forward(self, rotations: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 24, 3, 3), (N, 10) -> vertices (N, V, 3), SPIN's joints (N, 49, 3)."""
        out = self.body(
            betas=shape, global_orient=rotations[:, :1], body_pose=rotations[:, 1:], pose2rot=False
        )
        joints = torch.cat([out.joints, self.extra @ out.vertices], 1)  # (N, 54, 3)
        return out.vertices, joints[:, self.joint_map]

    def vertices(self, rotations: Tensor, shape: Tensor) -> Tensor:
        """(N, 24, 3, 3), (N, 10) -> (N, V, 3)."""
        return self(rotations, shape)[0]


class _Parents:
    """Parents of the joints. A single one is a Python number, because smplx reads them one by one,
    which would synchronise a GPU each time; several are a tensor on the body's device.
    """

    def __init__(self, body: nn.Module):
        self.body, self.numbers = body, body.parents.tolist()  # pyright: ignore
        self.shape = (len(self.numbers),)

    def __getitem__(self, which: int | slice) -> Any:
        if isinstance(which, int):
            return self.numbers[which]
        return self.body._buffers["parents"][which]  # pyright: ignore


def project(joints: Tensor, camera: Tensor) -> Tensor:
    """Project points with weak-perspective cameras (s, tx, ty), to [-1, 1] inside the crop.

    (N, P, 3), (N, 3) -> (N, P, 2). A camera of focal length 5000 stands at [tx, ty, 2 f / (224 s)].
    """
    scale, tx, ty = camera.unbind(-1)
    depth = 2 * FOCAL / (IMAGE * scale + 1e-9)
    points = joints + torch.stack([tx, ty, depth], -1)[:, None]
    return FOCAL / (IMAGE / 2) * points[..., :2] / points[..., 2:]


def read_body(path: Path) -> dict[str, NDArray]:
    """Return the checked arrays of a SMPL npz, including `vertex_ids` (21,)."""
    commands = "scripts/prepare_smpl.py (the official one) or scripts/prepare_mini.py (free)"
    return check_body(read_npz(path, advice=f"Make it with {commands}."), str(path))


def check_body(arrays: dict[str, NDArray], name: str) -> dict[str, NDArray]:
    """Return SMPL's arrays in smplx's types; refuse arrays of other shapes and other bodies."""
    if missing := [key for key in KEYS if key not in arrays]:
        raise ValueError(f"{name}: expected the arrays {', '.join(KEYS)}; missing {missing}.")
    vertices, joints = len(arrays["v_template"]), len(arrays["J_regressor"])
    if joints != JOINTS:
        hint = {52: " This is SMPL-H.", 55: " This is SMPL-X."}.get(joints, "")
        got = f"{joints} joints and {vertices} vertices.{hint} Use SMPL's own model files."
        raise ValueError(f"{name}: expected SMPL with {JOINTS} joints, got {got}")
    shapes = {
        **{"v_template": (vertices, 3), "shapedirs": (vertices, 3, SHAPES)},
        **{"posedirs": (vertices, 3, 9 * (JOINTS - 1)), "J_regressor": (JOINTS, vertices)},
        **{"weights": (vertices, JOINTS), "kintree_table": (2, JOINTS)},
    }
    arrays = {**arrays, "shapedirs": arrays["shapedirs"][..., :SHAPES]}
    checked = {key: numbers(arrays[key], shape, f"{name}: {key}") for key, shape in shapes.items()}
    checked |= {key: arrays[key].astype(np.int64) for key in ("kintree_table", "f")}
    ids = arrays.get("vertex_ids")
    if ids is None and vertices != SMPL_VERTICES:
        raise ValueError(f"{name}: a mesh of {vertices} vertices, not SMPL's, needs vertex_ids.")
    known = known_vertex_ids["smplh"]  # SMPL and SMPL-H have the same mesh
    ids = np.array([known[key] for key in SELECTED]) if ids is None else ids
    if ids.shape != (len(SELECTED),):
        raise ValueError(f"{name}: expected {len(SELECTED)} vertex_ids, got {ids.shape}.")
    return checked | {"vertex_ids": ids}


def read_pickle(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a SMPL pickle; nothing in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; SMPL is downloaded from smpl.is.tue.mpg.de")
    try:
        content = Reader(io.BytesIO(path.read_bytes()), "latin1", PACKAGES).load()
        arrays = {key: _plain_array(content[key], key) for key in KEYS if key in content}
    except Exception as error:  # a damaged or hostile pickle fails in many ways
        raise ValueError(
            f"{path}: expected one of SMPL's pickles, a dict of arrays; {error}. Nothing of it was "
            "executed. Download the file again from SMPL's site."
        ) from error
    return check_body(arrays, str(path))


def _plain_array(value: Any, name: str) -> NDArray:
    """Return an array, from the state of a chumpy array or a sparse matrix if it is one."""
    state = value.state if isinstance(value, Call) and isinstance(value.state, dict) else {}
    if {"data", "indices", "indptr"} <= set(state):
        shape = state.get("_shape") or state["shape"]
        parts = tuple(value_of(state[key]) for key in ("data", "indices", "indptr"))
        matrix = csc_matrix(parts, shape=tuple(int(value_of(side)) for side in shape))
        matrix.check_format()  # `toarray` would write beyond its memory
        return matrix.toarray()
    found = value_of(state.get("x", value))
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
        raise ValueError(f"{name} is not an array of numbers")
    return found


def read_regressor(path: Path, joints: int, vertices: int) -> NDArray:
    """Return (joints, vertices) float32."""
    array = read_npy(_find(path, "joint regressor"))
    return numbers(array, (joints, vertices), f"{path}: the regressor of joints from vertices")


def read_mean(path: str | Path) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean pose (144,) as (24, 3, 2) columns, shape (10,) and camera (3,)."""
    file = read_npz(_find(Path(path), "mean parameters"))
    sizes = {"pose": 144, "shape": SHAPES, "cam": 3}
    wrong = [key for key, size in sizes.items() if key not in file or file[key].size != size]
    if wrong:
        raise ValueError(f"{path}: expected pose (144,), shape (10,) and cam (3,); check {wrong}.")
    pose, shape, camera = (torch.from_numpy(file[k].reshape(-1).astype(np.float32)) for k in sizes)
    return pose, shape, camera


def mean_rotations(path: str | Path) -> Tensor:
    """Return the mean pose (24, 3, 3)."""
    return matrix_from_6d(read_mean(path)[0].unflatten(-1, (JOINTS, 6)))


def matrix_from_6d(six: Tensor) -> Tensor:
    """(..., 6) -> (..., 3, 3): Gram-Schmidt on two columns, the third is their cross product.

    A 6-D rotation is the first two columns of a matrix, (..., 3, 2), flattened row by row.
    """
    return roma.special_gramschmidt(six.unflatten(-1, (3, 2)))


def _find(path: Path, kind: str) -> Path:
    """Return the file, or the one in body_models, where MMHuman3D's data folder has it."""
    for candidate in (path, path.parent / "body_models" / path.name):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{path}: no such {kind}; the file comes with SPIN's data.")
