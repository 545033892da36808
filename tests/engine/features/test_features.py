"""Cached features stand for the frozen backbone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.features import cache as features
from engine.features.cache import MADE_FROM, FeatureTable
from engine.runs import checkpoint
from engine.runs.run import run
from engine.training.build import make_fabric
from tests.engine.tiny import TinyNet, config, depth_config

STAGE2 = "imdb_wiki/bmc"


@pytest.mark.parametrize(
    ("make", "data", "row", "changes"),
    [
        (config, "faces", STAGE2, ["trainer.epochs=5"]),
        (depth_config, "rooms", "nyud2/bni", []),
    ],
)
def test_cached_and_uncached_give_the_same_head(
    make, data: str, row: str, changes: list, tmp_path: Path, request: pytest.FixtureRequest
):
    plain = ("dataset.augment=false", "optim.optimizer.lr=0.01", *changes)
    cached = ("features=cached", "features.views=1", "features.augment=false")
    folder = request.getfixturevalue(data)
    runs = [run(make(folder, tmp_path, row, *how, *plain)) for how in (["features=none"], cached)]
    assert runs[0]["folder"] != runs[1]["folder"]
    one, other = (
        checkpoint.read(Path(done["folder"]) / "checkpoints" / "last.pt")["task"] for done in runs
    )
    assert set(one) == set(other)
    if make is config:  # stage 1's checkpoint has the rest
        model = {key for key in one if key.startswith("model.")}
        assert model == {"model.linear.weight", "model.linear.bias"}
    for key, value in one.items():
        torch.testing.assert_close(other[key], value, rtol=0, atol=1e-4)
    known = {key: value for key, value in runs[0]["metrics"].items() if value is not None}
    assert len(known) > (20 if make is depth_config else 0)
    for key, value in known.items():
        # 1e-3: the table of maps is float16
        assert runs[1]["metrics"][key] == pytest.approx(value, rel=1e-3), key


def test_extraction_resumes_from_its_shards(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(features, "SHARD", 10)
    cfg = config(faces, tmp_path, STAGE2, "features=cached", "features.views=2")
    fabric, model = make_fabric(cfg), TinyNet()
    dataset = features.build.dataset(cfg, "train")
    features.extract(fabric, model, dataset, tmp_path / "whole", 2, cfg)
    forward, calls = model.features, []

    def interrupted(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return forward(x)

    monkeypatch.setattr(model, "features", interrupted)
    with pytest.raises(KeyboardInterrupt):
        features.extract(fabric, model, dataset, tmp_path / "cut", 2, cfg)
    assert len(list((tmp_path / "cut" / "shards").glob("*.npz"))) == 3
    assert not (tmp_path / "cut" / "about.json").exists()
    features.extract(fabric, model, dataset, tmp_path / "cut", 2, cfg)
    assert len(calls) == 4 + 7  # three of ten shards existed
    assert not (tmp_path / "cut" / "shards").exists()
    for name, shape in (("features", (2, 48, 8)), ("target", (2, 48, 1))):
        one, other = (np.load(tmp_path / k / f"{name}.npy") for k in ("whole", "cut"))
        np.testing.assert_array_equal(one, other)
        assert one.shape == shape


def test_compiled_features_are_those_of_the_model(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shapes = []

    def compiled(forward: Any) -> Any:  # torch itself tests the numbers of torch.compile
        return lambda x: (shapes.append(len(x)), forward(x))[1]

    monkeypatch.setattr(torch, "compile", compiled)
    settings = ("features=cached", "features.views=1", "features.batch_size=10")
    model, tables = TinyNet(), []
    for name in ("false", "true"):
        cfg = config(faces, tmp_path, STAGE2, *settings, f"trainer.compile={name}")
        dataset = features.build.dataset(cfg, "train")
        features.extract(make_fabric(cfg), model, dataset, tmp_path / name, 1, cfg)
        tables.append(np.load(tmp_path / name / "features.npy"))
    np.testing.assert_array_equal(*tables)
    assert shapes == [10] * 4  # of 48 images; the last batch has another shape


def test_each_epoch_reads_its_view(tmp_path: Path):
    np.save(tmp_path / "features.npy", np.arange(2 * 5 * 3.0).reshape(2, 5, 3))
    np.save(tmp_path / "target.npy", np.arange(2.0)[:, None, None] * 10 + np.arange(5.0)[:, None])
    table, part = FeatureTable(tmp_path), FeatureTable(tmp_path, [4, 1])
    assert (len(table), len(part)) == (5, 2)
    for epoch in (0, 1, 2):
        view = epoch % 2
        batch = table.__getitems__([(epoch, 4), (epoch, 1)])
        assert batch["input"].tolist() == [
            [15 * view + 3 * k + i for i in range(3)] for k in (4, 1)
        ]
        assert batch["target"].tolist() == [[10 * view + 4.0], [10 * view + 1.0]]
        assert batch["meta"]["index"].tolist() == [4, 1]
        own = part.__getitems__([(epoch, 0), (epoch, 1)])
        assert torch.equal(own["input"], batch["input"])
        assert own["meta"]["index"].tolist() == [0, 1]
    table.together = 2  # two views of each image in a batch
    batch = table.__getitems__([(1, 4), (1, 1)])
    assert batch["target"][:, 0].tolist() == [14, 11, 4, 1]
    assert batch["meta"]["index"].tolist() == [4, 1, 4, 1]


def test_the_table_is_keyed_by_the_backbone(faces: Path, tmp_path: Path):
    for seed in (0, 1):
        run(config(faces, tmp_path, STAGE2, "features=cached", f"seed={seed}"))
    assert len(list((tmp_path / "features").iterdir())) == 1  # two heads, one table
    run(config(faces, tmp_path, STAGE2, "features=cached", "backbone.seed=1"))
    assert len(list((tmp_path / "features").iterdir())) == 2


DAMAGES = {
    "features.npy is missing or damaged": lambda folder: damage(folder / "features.npy"),
    "target.npy is missing or damaged": lambda folder: (folder / "target.npy").unlink(),
    "about.json is damaged": lambda folder: (folder / "about.json").write_text("{"),
    "files and images and code changed": lambda folder: (folder.parent / MADE_FROM).unlink(),
    "": lambda folder: (folder / "about.json").unlink(),  # not finished
}


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_table_is_recomputed(
    message: str, faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    cfg = config(faces, tmp_path, STAGE2, "features=cached")
    model, splits, passes = TinyNet(), {"val": features.build.dataset(cfg, "val")}, []
    model.conv.register_forward_hook(lambda *_: passes.append(1))

    def batch() -> torch.Tensor:
        table = features.tables(make_fabric(cfg), cfg, model, splits, None)["val"]
        return table.__getitems__([(0, 3), (0, 11)])["input"]

    first = batch()
    assert torch.equal(batch(), first)
    assert len(passes) == 1
    (folder,) = (tmp_path / "features").glob("*/val")
    DAMAGES[message](folder)
    assert torch.equal(batch(), first)
    assert len(passes) == 2
    assert (f"features recomputed, as {message}" in capsys.readouterr().err) == bool(message)


def test_features_that_are_not_finite_are_named(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path, STAGE2, "features=cached", "features.dtype=float16")
    model, splits = TinyNet(), {"val": features.build.dataset(cfg, "val")}
    torch.nn.init.constant_(model.bn.weight, 1e9)  # more than float16 holds
    with pytest.raises(ValueError, match=r"features of images \[0, .*not finite as float16"):
        features.tables(make_fabric(cfg), cfg, model, splits, None)
