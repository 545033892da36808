"""The released checkpoints' layout loads; anything else is refused by name, and runs nothing."""

import os
from pathlib import Path

import pytest
import torch

from models.released import load
from models.resnet import ResNet


@pytest.fixture(scope="module")
def content() -> dict:
    """A checkpoint in the released layout, with random weights."""
    torch.manual_seed(0)
    state = {f"module.{key}": value for key, value in ResNet(50).state_dict().items()}
    return {"state_dict": state, "epoch": 9, "best_loss": 12.7, "optimizer": {"state": {}}}


def test_the_layout_is_the_released_one(content: dict):
    """Facts about the public files: 320 tensors, these names and shapes among them."""
    shapes = {key: tuple(value.shape) for key, value in content["state_dict"].items()}
    assert len(shapes) == 320
    assert shapes["module.conv1.weight"] == (64, 3, 7, 7)
    assert shapes["module.layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["module.layer4.2.bn3.running_var"] == (2048,)
    assert shapes["module.linear.weight"] == (1, 2048)
    assert shapes["module.linear.bias"] == (1,)


def test_it_loads_and_predicts(content: dict, tmp_path: Path):
    torch.save(content, tmp_path / "bmc.pth")
    model = load(tmp_path / "bmc.pth", "imdb_wiki")
    assert not model.training
    expected = ResNet(50).eval()
    expected.load_state_dict({k[7:]: v for k, v in content["state_dict"].items()})
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert model(x).shape == (2, 1)
        assert torch.equal(model(x), expected(x))


def test_another_layout(content: dict, tmp_path: Path):
    path = tmp_path / "a.pth"
    state = dict(content["state_dict"])
    del state["module.linear.bias"]
    torch.save({"state_dict": {**state, "module.fc.bias": torch.zeros(1)}}, path)
    with pytest.raises(
        ValueError, match=r"a\.pth.*missing \['linear.bias'\], unexpected \['fc.bias'\]"
    ):
        load(path, "imdb_wiki")
    wide = {**content["state_dict"], "module.linear.weight": torch.zeros(2, 2048)}
    torch.save({"state_dict": wide}, path)
    with pytest.raises(ValueError, match=r"a\.pth: linear.weight has shape \(2, 2048\)"):
        load(path, "imdb_wiki")
    torch.save({"model": {}}, path)
    with pytest.raises(
        ValueError, match=r"a\.pth: expected a dict with `state_dict`, found \['model'\]"
    ):
        load(path, "imdb_wiki")
    with pytest.raises(ValueError, match="layout is one of"):
        load(path, "cifar")
    with pytest.raises(FileNotFoundError, match=r"b\.pth: no such checkpoint"):
        load(tmp_path / "b.pth", "imdb_wiki")


class Malicious:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


def test_a_malicious_pickle_is_not_executed(tmp_path: Path):
    torch.save({"state_dict": Malicious(tmp_path / "trace")}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a\.pth.*never executed"):
        load(tmp_path / "a.pth", "imdb_wiki")
    assert not (tmp_path / "trace").exists()
