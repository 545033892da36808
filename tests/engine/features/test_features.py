"""Cached features stand for the frozen backbone."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from datasets.ages import AgeDataset
from engine.features import cache as features
from engine.features import table as feature_table
from engine.runs import checkpoint
from engine.runs.run import make_fabric, run
from tests.engine.tiny import SIZE, TinyNet, config, write_faces

STAGE2 = "imdb_wiki/bmc"


def head(done: dict) -> dict:
    return checkpoint.read(Path(done["folder"]) / "checkpoints" / "last.pt")["task"]


def test_cached_and_uncached_give_the_same_head(faces: Path, tmp_path: Path):
    plain = ("dataset.augment=false", "trainer.epochs=5", "optim.optimizer.lr=0.01")
    uncached = run(config(faces, tmp_path, STAGE2, "features=none", *plain))
    cached = run(
        config(
            faces,
            tmp_path,
            STAGE2,
            "features=cached",
            "features.views=1",
            "features.augment=false",
            *plain,
        )
    )
    assert uncached["folder"] != cached["folder"]
    one, other = head(uncached), head(cached)
    assert set(one) == set(other)
    assert {key for key in one if key.startswith("model.")} == {
        "model.linear.weight",
        "model.linear.bias",
    }
    for key, value in one.items():
        torch.testing.assert_close(other[key], value, rtol=0, atol=1e-4)


def test_extraction_goes_on_from_its_shards(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(features, "SHARD", 10)
    cfg = config(faces, tmp_path, STAGE2, "features=cached", "features.views=2")
    fabric, model = make_fabric(cfg), TinyNet()
    dataset = features.build.dataset(cfg, "train")
    features.extract(fabric, model, dataset, tmp_path / "whole.h5", 2, cfg)

    calls = []
    forward = model.features

    def stop_in_the_middle(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return forward(x)

    monkeypatch.setattr(model, "features", stop_in_the_middle)
    with pytest.raises(KeyboardInterrupt):
        features.extract(fabric, model, dataset, tmp_path / "cut.h5", 2, cfg)
    assert len(list((tmp_path / "cut.parts").glob("*.h5"))) == 3
    calls.clear()
    calls.extend([0] * 10)  # never again at four
    features.extract(fabric, model, dataset, tmp_path / "cut.h5", 2, cfg)
    assert len(calls) - 10 == 7  # of ten shards, three were there
    assert not (tmp_path / "cut.parts").exists()
    with h5py.File(tmp_path / "whole.h5") as one, h5py.File(tmp_path / "cut.h5") as other:
        np.testing.assert_array_equal(one["features"], other["features"])  # pyright: ignore
        assert one["features"].shape == (2, 48, 8)  # pyright: ignore


def test_compiled_features_are_those_of_the_model(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shapes = []

    def compiled(forward: Any) -> Any:  # what torch.compile does to numbers is torch's to test
        def fast(x: torch.Tensor) -> torch.Tensor:
            shapes.append(len(x))
            return forward(x)

        return fast

    monkeypatch.setattr(torch, "compile", compiled)
    settings = ("features=cached", "features.views=1", "features.batch_size=10")
    tables = {}
    for name in ("false", "true"):
        cfg = config(faces, tmp_path, STAGE2, *settings, f"trainer.compile={name}")
        torch.manual_seed(0)
        dataset = features.build.dataset(cfg, "train")
        features.extract(make_fabric(cfg), TinyNet(), dataset, tmp_path / f"{name}.h5", 1, cfg)
        with h5py.File(tmp_path / f"{name}.h5") as file:
            tables[name] = np.array(file["features"])
    np.testing.assert_array_equal(tables["true"], tables["false"])
    assert shapes == [10] * 4  # of 48: the last batch is of another shape, not worth compiling for


def test_epochs_go_through_the_views(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = np.arange(2 * 5 * 3).reshape(2, 5, 3)
        file["target"] = np.arange(2.0)[:, None, None] * 10 + np.arange(5.0)[:, None]
        views = [{name: file[name][view] for name in ("features", "target")} for view in (0, 1)]
        file["sums"] = np.stack([feature_table.row_sums(view) for view in views])
    table = feature_table.FeatureTable(tmp_path / "a.h5", 5)
    for epoch in (0, 1, 2):
        batch = table.__getitems__([(epoch, 4), (epoch, 1)])
        view = epoch % 2
        expected = [[15 * view + 12 + i for i in range(3)], [15 * view + 3 + i for i in range(3)]]
        assert batch["input"].tolist() == expected
        assert batch["target"].tolist() == [[10 * view + 4.0], [10 * view + 1.0]]
        assert batch["meta"]["index"].tolist() == [4, 1]
    with pytest.raises(ValueError, match=r"a\.h5: holds features of 5 images, the split has 4"):
        feature_table.FeatureTable(tmp_path / "a.h5", 4)


def test_the_table_is_keyed_by_the_backbone(faces: Path, tmp_path: Path):
    for seed in (0, 1):
        run(config(faces, tmp_path, STAGE2, "features=cached", f"seed={seed}"))
    assert len(list((tmp_path / "features").iterdir())) == 1  # two heads, one table
    run(config(faces, tmp_path, STAGE2, "features=cached", "backbone.seed=1"))
    assert len(list((tmp_path / "features").iterdir())) == 2


def test_cached_features_need_frozen_batch_norm(faces: Path, tmp_path: Path):
    with pytest.raises(
        ValueError, match=r"features=cached needs a frozen backbone.*freeze_bn=False"
    ):
        run(config(faces, tmp_path, STAGE2, "features=cached", "freeze_bn=false"))
    with pytest.raises(ValueError, match=r"features=cached needs a frozen backbone.*backbone=None"):
        run(config(faces, tmp_path, "imdb_wiki/vanilla", "features=cached"))


@pytest.mark.parametrize("damage", ["zeroed", "cut", "older"])
def test_damaged_features_are_named_and_made_again_as_the_message_says(
    damage: str, faces: Path, tmp_path: Path
):
    cfg = config(faces, tmp_path, STAGE2, "features=cached")
    first = run(cfg)
    (path,) = (tmp_path / "features").glob("*/train.h5")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:3000])
    else:
        with h5py.File(path, "r+") as file:
            if damage == "zeroed":
                file["features"][0, 3:5] = 0
            else:
                del file["sums"]
    cfg.rerun = True
    with pytest.raises(ValueError, match=r"train\.h5: .*Remove .*train\.h5 and start the same"):
        run(cfg)
    path.unlink()
    assert run(cfg)["metrics"] == first["metrics"]


def test_other_images_make_the_features_again(tmp_path: Path, capsys: pytest.CaptureFixture):
    data = write_faces(tmp_path / "data")
    cfg = config(data, tmp_path, STAGE2, "features=cached", "trainer.epochs=1")
    cfg.backbone.overrides = ["trainer.epochs=0"]
    run(cfg)
    (path,) = (tmp_path / "features").glob("*/train.h5")
    before = path.stat().st_mtime_ns
    image = data / "imdb_wiki" / "faces" / "train0.jpg"
    image.write_bytes((data / "imdb_wiki" / "faces" / "train1.jpg").read_bytes())
    done = run(cfg)
    assert path.stat().st_mtime_ns != before
    said = capsys.readouterr().err
    assert "features made again, as images changed" in said
    assert "run again, as images" in said
    assert done["folder"] != ""


def test_features_that_are_not_finite_are_named(faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path, STAGE2, "features=cached", "features.dtype=float16")
    model = TinyNet()
    with torch.no_grad():
        model.bn.weight.fill_(1e9)  # more than float16 holds
    fabric = Fabric(accelerator="cpu", devices=1)
    splits = {"val": AgeDataset(cfg.dataset.csv, cfg.dataset.root, "val", SIZE)}
    with pytest.raises(ValueError, match=r"features of images .*not finite as float16"):
        features.tables(fabric, cfg, model, splits, None)
