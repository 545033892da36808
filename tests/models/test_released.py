"""The released checkpoints' layout loads; anything else is refused by name, and runs nothing."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.hmr import HMR
from models.released import load, read_plain
from models.resnet import ResNet
from tests.datasets.io.test_pickles import Program

scalar: Any = np._core.multiarray.scalar  # pyright: ignore[reportAttributeAccessIssue]


# Facts about the public files: the number of tensors, and names and shapes among them.
FACTS: dict[str, tuple[int, dict[str, tuple[int, ...]]]] = {
    "imdb_wiki": (320, {"linear.weight": (1, 2048), "linear.bias": (1,)}),
    "spin": (
        331,
        {
            **{"init_pose": (1, 144), "init_shape": (1, 10), "init_cam": (1, 3)},
            **{"layer4.2.bn3.num_batches_tracked": (), "fc1.weight": (1024, 2205)},
            **{"fc2.weight": (1024, 1024), "decpose.weight": (144, 1024)},
            **{"decshape.bias": (10,), "deccam.weight": (3, 1024)},
        },
    ),
}
SHAPES = {"conv1.weight": (64, 3, 7, 7), "layer1.0.downsample.0.weight": (256, 64, 1, 1)}
SHAPES |= {"layer4.2.bn3.running_var": (2048,)}  # of both


@pytest.fixture(scope="module")
def networks() -> dict[str, Any]:
    torch.manual_seed(0)
    return {"imdb_wiki": ResNet(50).eval(), "spin": HMR().eval()}


@pytest.fixture(scope="module")
def content(networks: dict[str, Any]) -> dict:
    """A checkpoint in the released layout, with random weights."""
    state = {f"module.{key}": v for key, v in networks["imdb_wiki"].state_dict().items()}
    best = np.float32(12.7)  # a minimum of NumPy means, as the released training code saves it
    return {"state_dict": state, "epoch": 9, "best_loss": best, "optimizer": {"state": {}}}


def as_numpy_1_wrote_it(path: Path) -> Path:
    """The same checkpoint with the module's old name in the pickle."""
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for name, data in parts.items():
            renamed = data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            assert (renamed != data) == name.endswith("data.pkl")
            new.writestr(name, renamed)
    return path


@pytest.mark.parametrize("layout", FACTS)
def test_the_layout_is_the_released_one(networks: dict[str, Any], layout: str):
    count, known = FACTS[layout]
    shapes = {key: tuple(value.shape) for key, value in networks[layout].state_dict().items()}
    assert len(shapes) == count
    assert shapes.items() >= {**SHAPES, **known}.items()


@pytest.mark.parametrize("kind", ["imdb_wiki", "imdb_wiki by numpy 1", "spin"])
def test_it_loads_and_predicts(networks: dict, content: dict, tmp_path: Path, kind: str):
    layout = kind.split()[0]
    spin = {"model": networks["spin"].state_dict(), "epoch": 3}
    torch.save(spin if layout == "spin" else content, tmp_path / "a.pt")
    if kind != layout:
        as_numpy_1_wrote_it(tmp_path / "a.pt")
    model = load(tmp_path / "a.pt", layout)
    assert not model.training
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        found, expected = model(x), networks[layout](x)
    shapes = {"imdb_wiki": [(2, 1)], "spin": [(2, 24, 3, 3), (2, 10), (2, 3)]}
    assert [tuple(y.shape) for y in (found if layout == "spin" else [found])] == shapes[layout]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


OTHERS = {
    r"a\.pth.*Missing key.*linear.bias.* Unexpected key.*fc.bias": lambda state: {
        "state_dict": {("module.fc.bias" if "near.bias" in k else k): v for k, v in state.items()}
    },
    r"a\.pth.*mismatch for linear.weight.*\(\[2, 2048\]": lambda state: {
        "state_dict": {**state, "module.linear.weight": torch.zeros(2, 2048)}
    },
    r"a\.pth: expected a dict with `state_dict`, found \['model'\]": lambda state: {"model": {}},
    r"a\.pth.*never executed": lambda state: {"state_dict": Program(os.system, ("touch trace",))},
}


@pytest.mark.parametrize("message", OTHERS)
def test_another_layout(content: dict, tmp_path: Path, message: str, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(OTHERS[message](content["state_dict"]), "a.pth")
    with pytest.raises(ValueError, match=message):
        load("a.pth", "imdb_wiki")
    assert not Path("trace").exists()
    torch.save({"state_dict": {}}, "other.pt")
    with pytest.raises(ValueError, match=r"other\.pt: expected a dict with `model`"):
        load("other.pt", "spin")
    with pytest.raises(ValueError, match="Unknown layout 'cifar'; choose from imdb_wiki"):
        load("a.pth", "cifar")
    with pytest.raises(FileNotFoundError, match=r"b\.pth: no such checkpoint"):
        load("b.pth", "imdb_wiki")


@pytest.mark.parametrize("zipped", [True, False])
def test_floats_of_numpy_are_read(tmp_path: Path, zipped: bool):
    """Errors and metrics, as the released depth code saves them."""
    metric = {"RMSE": np.sqrt(1.64), "NUM": 7}
    content = {"error": np.float64(1.28), "metric": {"few": metric}, "half": np.float16(0.5)}
    content["swapped"] = np.array([2.5], ">f4")[0]
    torch.save(content, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    assert read_plain(tmp_path / "a.pth") == content


OBJECT = Program(np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, 63))
# An object type that claims to hold plain bytes: NumPy would take them for an address.
DISGUISED = Program(np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, 0))
FLOAT = Program(np.dtype, ("f8", False, True), (3, "<", None, None, None, -1, -1, 0))
HOSTILE = {
    "an object": Program(scalar, (OBJECT, [1])),
    "an address": Program(scalar, (DISGUISED, b"\0" * 8)),
    "fields": Program(np.dtype, ([("a", "O")],)),
    "an array": np.arange(3),
    "an object array": np.array([{}], dtype=object),
    "a whole number": np.int64(3),
    "text": np.str_("a"),
    "too many bytes": Program(scalar, (FLOAT, b"\0" * 9)),
    "no bytes": Program(scalar, (FLOAT, 3)),
    "no type": Program(scalar, ("f8", b"\0" * 8)),
    "a strange state": Program(np.dtype, ("f8",), (3, "!", None)),
    "an attribute": Program(getattr, (Program(scalar, (FLOAT, b"\0" * 8)), "tofile")),
    "a function of NumPy": Program(np.load, ("a.npy",)),
    "a memory map": Program(np.memmap, ("a", "u1", "w+", 0, (1,))),
    "an import": Program(__import__, ("os",)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_of_numpy_is_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {}, "best_loss": HOSTILE[name]}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a\.pth.*never executed"):
        read_plain(tmp_path / "a.pth")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pth"]
