"""The depth models: the released layout, shapes, freezing, and weights that cannot be fetched."""

import json
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
import torchvision
from torch import nn

from losses.regularizers import FDS
from models import released
from models.depth import DepthNet, UpProjection
from models.depth_lite import LiteDepth

LAYOUT = json.loads((Path(__file__).parents[1] / "data" / "nyud2_layout.json").read_text())


def test_the_released_layout_loads_with_no_missing_or_unexpected_key(
    monkeypatch: pytest.MonkeyPatch,
):
    """The state is made from the recorded shapes, not from the model."""
    state = {key: torch.full((), 0.5).expand(shape) for key, shape in LAYOUT.items()}
    monkeypatch.setattr(released, "read_plain", lambda path: {"state_dict": state, "epoch": 9})
    model: Any = released.load("bni.pth", "nyud2")
    assert not model.training
    assert {f"module.{k}": list(v.shape) for k, v in model.state_dict().items()} == LAYOUT
    assert bool((model.D.up4.conv1_2.weight == 0.5).all())
    del state["module.R.conv2.bias"]
    with pytest.raises(ValueError, match=r"bni\.pth.*Missing.*R.conv2.bias"):
        released.load("bni.pth", "nyud2")


@pytest.mark.parametrize("depth", [18, 34, 50])
def test_half_the_size_comes_out(depth: int):
    with torch.device("meta"):  # shapes only
        model = DepthNet(depth, outputs=5)
        assert model(torch.empty(2, 3, 228, 304)).shape == (2, 5, 114, 152)


def test_up_projection_term_by_term():
    torch.manual_seed(0)
    up = UpProjection(4, 2).eval()
    for bn in (up.bn1, up.bn1_2, up.bn2):
        nn.init.uniform_(bn.running_mean)  # pyright: ignore
        nn.init.uniform_(bn.weight)
    x = torch.randn(1, 4, 3, 5)
    grown = nn.Upsample(size=(6, 10), mode="bilinear")(x)
    conv = torch.nn.functional.conv2d
    long = up.bn1(conv(grown, up.conv1.weight, padding=2)).clamp(min=0)
    long = up.bn1_2(conv(long, up.conv1_2.weight, padding=1))
    short = up.bn2(conv(grown, up.conv2.weight, padding=2))
    torch.testing.assert_close(up(x, (6, 10)), (long + short).clamp(min=0))


def test_a_failed_download_warns_and_leaves_random_weights(monkeypatch: pytest.MonkeyPatch):
    class Offline:
        def get_state_dict(self, **options):
            raise URLError("no network")

    offline: Any = {"IMAGENET1K_V1": Offline()}
    monkeypatch.setattr(torchvision.models, "get_model_weights", lambda name: offline)
    with pytest.warns(UserWarning, match="ResNet-18 cannot be fetched.*starts at random"):
        DepthNet(18, weights="imagenet")


def test_lite_caches_one_vector_per_image():
    lite = LiteDepth(outputs=2, size=(64, 96), pretrained=False)
    x = torch.randn(2, 3, 64, 96)
    assert lite.features(x).shape == (2, sum(c * h * w for c, h, w in lite.shapes))
    assert lite(x).shape == (2, 2, 8, 12)


def test_smoothing_moves_pixels_with_a_measurement_only():
    torch.manual_seed(0)
    model = LiteDepth(size=(64, 96), pretrained=False, smoothing=lambda c: FDS(c, 0, 10, 0.1))
    rows = model.features(torch.randn(2, 3, 64, 96))
    target = torch.rand(2, 1, 8, 12) * 9 + 0.7
    target[:, :, :4] = 0
    model.train()
    model.head(rows, target)
    assert isinstance(model.smoothing, FDS)
    assert model.smoothing.count.sum() == (target > 0).sum()
    model.smoothing.end_epoch()
    maps = model.decode(rows)
    plain, smooth = model.last(maps), model.head(rows, target)
    moved = (plain - smooth).abs()[:, 0] > 1e-6
    assert moved[target[:, 0] > 0].any()
    assert not moved[target[:, 0] == 0].any()
