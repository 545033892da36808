"""Mixed precision through Fabric: the loss and its gradient are those of float32, up to the
rounding of what the model computes in half precision.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision, Precision

from engine.benchmarks.bodies.task import MeshRecovery
from engine.training.build import labels_in_full
from losses.regularizers import FDS
from tests.engine import tiny_bodies
from tests.engine.training.test_no_wait import KINDS, samples, task

AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
ROWS = ["imdb_wiki/gai", "imdb_wiki/histogram", "imdb_wiki/fds"]
ROWS += ["nyud2/bni", "nyud2/inverse", "ihmr/bmc"]


def scaled(precision: Any) -> MixedPrecision:
    """With a scale that does not overflow at once: a scaler would lower it, step by step."""
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=64.0) if precision == "16-mixed" else None
    return MixedPrecision(precision, "cpu", scaler)


def step(whole: Any, batch: dict, precision: Any) -> tuple[float, float]:
    """The loss and the norm of its gradient after a step through Fabric."""
    torch.manual_seed(0)  # dropout
    plugin = scaled(precision) if "mixed" in precision else Precision()
    fabric = labels_in_full(Fabric(accelerator="cpu", devices=1, plugins=[plugin]))
    whole = copy.deepcopy(whole).train()
    module, optimizer = fabric.setup(whole, torch.optim.SGD(whole.parameters(), lr=1e-6))
    loss, _ = module(batch)
    fabric.backward(loss)
    scaler: Any = getattr(fabric.strategy.precision, "scaler", None)
    scale = 1.0 if scaler is None else scaler.get_scale()
    slopes = [p.grad.flatten() / scale for p in whole.parameters() if p.grad is not None]
    optimizer.step()
    assert all(p.isfinite().all() for p in whole.parameters())
    return float(loss.detach()), float(torch.cat(slopes).norm())


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("row", ROWS)
def test_a_step(row: str, precision: str, tmp_path: Path, request: pytest.FixtureRequest):
    make, data, count = KINDS[row.split("/")[0]]
    whole, train = task(make(request.getfixturevalue(data), tmp_path, row))
    batch = samples(train, count)
    loss, slope = step(whole, batch, precision)
    exact, exact_slope = step(whole, batch, "32-true")
    # 1%: predictions are off by 2^-9 in bfloat16, a loss of squares by twice that
    assert loss == pytest.approx(exact, rel=1e-2)
    assert slope == pytest.approx(exact_slope, rel=5e-2)  # a model's backward is rounded, too


@pytest.mark.parametrize("dtype", AUTOCAST.values())
def test_the_terms_of_bodies_are_computed_in_float32(dtype, bodies: Path, tmp_path: Path):
    """Given the predictions: skinning and cameras in half precision are off by centimetres."""
    whole, train = task(tiny_bodies.config(bodies, tmp_path, "ihmr/spin"))
    assert isinstance(whole, MeshRecovery)
    batch = samples(train, 16)
    pred = whole.eval().predict(batch).detach()
    whole.predict = lambda batch: pred
    exact, _ = whole(batch)
    with torch.autocast("cpu", dtype=dtype):
        loss, _ = whole(batch)
    assert loss == exact


@pytest.mark.parametrize("dtype", AUTOCAST.values())
def test_statistics_of_features_are_kept_in_float32(dtype):
    """Features around 1000, which half precision rounds, moved by a smoothing that is not."""
    g = torch.Generator().manual_seed(0)
    features = (1000 + 30 * torch.randn(200, 4, generator=g)).to(dtype)
    target = torch.randint(0, 5, (200, 1), generator=g).float()
    results = []
    for rows in (features, features.float()):
        fds = FDS(4, 0, 5)
        with torch.autocast("cpu", dtype=dtype, enabled=rows.dtype == dtype):
            fds(rows, target)
        fds.end_epoch()
        with torch.autocast("cpu", dtype=dtype, enabled=rows.dtype == dtype):
            results.append((fds(rows, target), fds.state_dict()))
    (low, state), (exact, other) = results
    assert low.dtype == dtype
    assert torch.equal(low, exact.to(dtype))
    assert all(torch.equal(state[key], other[key]) for key in state)
