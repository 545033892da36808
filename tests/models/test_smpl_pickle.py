"""SMPL's pickles become npz without chumpy, and a pickle that is a program runs nothing."""

import os
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_matrix

from models.smpl import read_pickle
from synthetic.mini.body import smpl_arrays
from tests.datasets.io.test_pickles import Program


def write_like_chumpy(path: Path, **changes) -> dict[str, np.ndarray]:
    """A pickle in SMPL's layout: a chumpy array, a sparse regressor, and arrays."""
    module = types.ModuleType("chumpy.ch")

    class Ch:
        def __init__(self, x):
            self.x = x

    Ch.__module__, Ch.__qualname__ = "chumpy.ch", "Ch"
    module.Ch = Ch  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules |= {"chumpy": types.ModuleType("chumpy"), "chumpy.ch": module}
    arrays = {**smpl_arrays("neutral"), **changes}
    content = {**arrays, "shapedirs": Ch(arrays["shapedirs"]), "bs_type": "lrotmin"}
    content["J_regressor"] = csc_matrix(arrays["J_regressor"])
    try:
        path.write_bytes(pickle.dumps(content, protocol=2))
    finally:
        del sys.modules["chumpy"], sys.modules["chumpy.ch"]
    return arrays


@pytest.fixture
def full_size(monkeypatch: pytest.MonkeyPatch):
    """Our mesh passes for SMPL's own: pickles hold no vertex_ids."""
    monkeypatch.setattr("models.smpl.SMPL_VERTICES", 2400)


def test_arrays_come_out_as_they_went_in(tmp_path: Path, full_size):
    arrays = write_like_chumpy(tmp_path / "smpl.pkl")
    assert "chumpy" not in sys.modules
    made = read_pickle(tmp_path / "smpl.pkl")
    for key in ("v_template", "shapedirs", "J_regressor", "weights", "f"):
        np.testing.assert_array_equal(made[key], arrays[key])


EVIL = Program(os.system, ("touch trace",))
OTHERS = {
    r"system.*Nothing of it was executed": pickle.dumps({"v_template": EVIL}),
    "expected one of SMPL's pickles": pickle.dumps({"f": np.zeros(9)})[:20],
    "v_template is not an array of numbers": pickle.dumps({"v_template": "text"}),
    "expected the arrays v_template": pickle.dumps([1]),
}


@pytest.mark.parametrize("message", OTHERS)
def test_other_files(message: str, tmp_path: Path, full_size, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("x.pkl").write_bytes(OTHERS[message])
    with pytest.raises(ValueError, match=rf"x\.pkl: .*{message}"):
        read_pickle(Path("x.pkl"))
    assert not Path("trace").exists()
    with pytest.raises(FileNotFoundError, match=r"a\.pkl: no such file"):
        read_pickle(Path("a.pkl"))
