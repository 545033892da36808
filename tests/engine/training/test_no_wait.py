"""A training step reads nothing back from a GPU: neither the loop, nor a model, nor a loss.

The tensors are fake CUDA tensors, which have a device and a shape but no numbers: whoever asks for
one gets an error, and so does whoever mixes devices. `Watched` adds what fake tensors let pass,
copies between the devices. Forward only; torch's own backward does not run on fake tensors.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from engine.training import build
from engine.training.divergence import DivergenceCheck
from losses.regularizers import FDS
from models.depth import DepthNet
from models.hmr import LiteHMR
from models.resnet import ResNet
from tests.engine import tiny, tiny_bodies
from tests.fake_gpu import move, on_gpu

SMOOTHING = partial(FDS, low=0, high=10, step=0.1)


class Watched(TorchDispatchMode):
    """Refuses what makes a GPU and Python wait for each other beyond reading a number."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
        devices = {t.device.type for t in tensors if t.ndim}  # a number may come from the host
        if len(devices) > 1:
            raise AssertionError(f"{func} copies between {sorted(devices)}")
        return out


def step(task: Any, batch: dict) -> torch.Tensor:
    """The loss of a training step, as the loop makes it."""
    batch = task.train().select(batch)
    with FakeTensorMode(allow_non_fake_inputs=True):
        move(task)
        batch = tree_map_only(torch.Tensor, on_gpu, batch)
        with Watched():
            loss, pred = task(batch)
    assert loss.device.type == pred.device.type == "cuda"
    assert loss.shape == ()
    return loss


def samples(dataset: Any, count: int) -> dict:
    items = [dataset[index] for index in range(count)]
    batch = {key: torch.stack([item[key] for item in items]) for key in ("input", "target")}
    return batch | {"meta": {"index": torch.arange(count)}}


def task(cfg: Any) -> tuple[Any, Any]:
    train = build.dataset(cfg, "train")
    whole = build.task(cfg, train.labels, None, getattr(train, "label_counts", None))
    whole.cached = False  # pyright: ignore[reportAttributeAccessIssue]
    return whole, train


ROWS = {
    "imdb_wiki": "vanilla gai bmc bni histogram balanced_l1 sqrt_inverse focal fds",
    "nyud2": "vanilla gai bni histogram balanced_l1 inverse fds",  # the exact sums: few pixels
    "ihmr": "spin spin_rt bmc gai balanced_l1",
}
KINDS = {  # config, data, samples
    "imdb_wiki": (tiny.config, "faces", 12),
    "nyud2": (tiny.depth_config, "rooms", 2),
    "ihmr": (tiny_bodies.config, "bodies", 16),
}


@pytest.mark.parametrize("row", [f"{name}/{row}" for name in ROWS for row in ROWS[name].split()])
def test_a_step(row: str, tmp_path: Path, request: pytest.FixtureRequest):
    make, data, count = KINDS[row.split("/")[0]]
    whole, train = task(make(request.getfixturevalue(data), tmp_path, row))
    step(whole, samples(train, count))


@pytest.mark.parametrize("kind", ["rotmat", "rot6d", "axis_angle", "tangent"])
def test_coordinates_of_poses(kind: str, bodies: Path, tmp_path: Path):
    whole, train = task(tiny_bodies.config(bodies, tmp_path, "ihmr/spin"))
    whole.loss.coordinates.kind = kind
    step(whole, samples(train, 16))


MODELS = {
    "resnet": lambda: ResNet(18, smoothing=SMOOTHING),
    "depth": lambda: DepthNet(18, smoothing=SMOOTHING),
    "lite hmr": lambda: LiteHMR(pretrained=False, grid=4, kept=3),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str):
    model = MODELS[name]().train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        move(model)
        images = torch.empty(4, 3, 64, 64, device="cuda")
        target = torch.empty(4, 1, *((32, 32) if name == "depth" else ()), device="cuda")
        with Watched():
            model(images) if "hmr" in name else model(images, target)


def test_the_divergence_check_stays_on_the_device():
    check = DivergenceCheck(Fabric(accelerator="cpu", devices=1), None, steps=10)
    check.every_step = False  # as on a GPU
    with FakeTensorMode():
        check.first_bad = torch.empty((), device="cuda")
        with Watched():
            check.record(3, torch.empty((), device="cuda"), {}, torch.empty(6, 1, device="cuda"))
        assert check.first_bad.device.type == "cuda"


@pytest.mark.parametrize("wait", ["a number", "a mask", "a list", "a copy", "a look"])
def test_a_wait_is_seen(wait: str):
    """Otherwise the tests above could not fail."""
    waits = {
        "a number": lambda x: x.sum().item(),
        "a mask": lambda x: x[x > 0],
        "a list": lambda x: x[[0, 2]],
        "a copy": lambda x: x.cpu(),
        "a look": lambda x: x if x.isfinite().all() else 0,
    }
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        with Watched(), pytest.raises(Exception, match=r"copies|aten"):
            waits[wait](x)
