"""Regularisers are terms of the loss; a loss without a likelihood predicts its labels directly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import open_dict
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from engine.runs import checkpoint
from engine.runs.run import composed, run
from engine.training import build
from engine.training.task import Regression
from losses import BalancedLoss, Flat, Gaussian, WeightedLoss
from tests.engine import tiny, tiny_bodies
from tests.engine.tiny import TinyNet, TinyRegularizer
from tests.engine.training.test_no_wait import samples

ALL = "+regularizer=[ranksim,conr,rnc,ordinal_entropy,srl,dist_loss]"
NODE = {"_target_": "tests.engine.tiny.TinyRegularizer", "weight": 0.5}


def regularized(cfg: Any) -> Any:
    with open_dict(cfg):
        cfg.regularizer.update({"one": NODE, "two": {**NODE, "weight": 2.0}})
    return cfg


def batch(n: int = 6) -> dict:
    generator = torch.Generator().manual_seed(0)
    images, target = (torch.randn(n, *shape, generator=generator) for shape in ((3, 16, 16), (1,)))
    return {"input": images, "target": target, "meta": {"index": torch.arange(n)}}


@pytest.mark.parametrize("cached", [False, True])
def test_regularizers_are_added_to_the_loss_and_reach_the_features(cached: bool):
    torch.manual_seed(0)
    model, passes = TinyNet(dropout=0.0), []
    model.conv.register_forward_hook(lambda *_: passes.append(1))
    loss, term = BalancedLoss(Gaussian(), Flat()), TinyRegularizer(0.5)
    task = Regression(model, loss, cached=cached, regularizers=[term])
    given = batch()
    features = torch.randn(6, 8, requires_grad=True)
    if cached:
        given["input"] = features
    total, pred = task(given)
    assert len(passes) == (0 if cached else 1)  # not twice
    plain = loss(pred, given["target"])
    expected = term(features if cached else model.features(given["input"]), pred, given["target"])
    torch.testing.assert_close(total, plain + expected)
    assert task.terms(given, pred)["regularizer/tinyregularizer"] == pytest.approx(expected.item())
    (total - plain).backward()
    grad = features.grad if cached else model.conv.weight.grad
    assert grad is not None
    assert grad.abs().sum() > 0
    with pytest.raises(ValueError, match="two regularizers of one class"):
        Regression(model, loss, regularizers=[term, term])


def test_regularizers_of_a_run(faces: Path, tmp_path: Path):
    """Fitted, logged, optimised, and resumed with the same bits; with two views and an adapter."""
    changes = ("trainer.checkpoint_every=1", "trainer.batch_size=16", "adapter=6", ALL)
    cfg = regularized(tiny.config(faces, tmp_path / "a", "imdb_wiki/bmc", *changes))
    done = Path(run(cfg)["folder"])
    state = checkpoint.read(done / "checkpoints" / "last.pt")["task"]
    labels = build.dataset(cfg, "train").labels
    assert float(state["regularizers.one.mean_label"]) == pytest.approx(labels.mean())
    assert float(state["regularizers.two.calls"]) == 6  # three steps, two epochs
    assert float(state["regularizers.two.scale"]) != 1
    assert state["model.hidden.0.weight"].shape == (6, 8)
    assert state["regularizers.srl.centroids"].abs().sum() > 0
    events = EventAccumulator(str(done)).Reload()
    values = [events.Scalars(f"train/regularizer/{name}") for name in ("one", "two")]
    assert values[1][0].value == pytest.approx(4 * values[0][0].value)  # the same scale at first
    assert {tag.split("/")[2] for tag in events.Tags()["scalars"] if "/regularizer/" in tag} == {
        *("ranksim", "conr", "rnc", "ordinal_entropy", "srl", "dist_loss", "one", "two")
    }

    class Interrupted(Exception):
        pass

    def stop(path: Path, content: dict, write: Any = checkpoint.write) -> None:
        write(path, content)
        if path.name == "last.pt" and content["position"] == {"epoch": 1, "step": 1}:
            raise Interrupted

    cfg = regularized(tiny.config(faces, tmp_path / "b", "imdb_wiki/bmc", *changes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write", stop)
        with pytest.raises(Interrupted):
            run(cfg)
    resumed = Path(run(cfg)["folder"])
    assert "resuming from" in (resumed / "train.log").read_text()
    again = checkpoint.read(resumed / "checkpoints" / "last.pt")["task"]
    assert state.keys() == again.keys()
    assert all(torch.equal(value, again[key]) for key, value in state.items())


def test_regularizers_of_maps_see_pixels(rooms: Path, tmp_path: Path):
    cfg = regularized(tiny.depth_config(rooms, tmp_path, "nyud2/bni", "features=none", ALL))
    train = build.dataset(cfg, "train")
    task: Any = build.task(cfg, train.labels, None, train.label_counts)
    mean = np.average(train.labels[:, 0], weights=train.label_counts)
    assert float(task.regularizers.one.mean_label) == pytest.approx(mean)
    shapes = []
    task.regularizers.one.register_forward_pre_hook(
        lambda _, given: shapes.append([tuple(x.shape) for x in given])
    )
    given = samples(train, 2)
    counted = given["target"][given["target"] >= task.nearest][:, None]
    loss, pred = task(given)
    assert shapes == [[(len(counted), 4), (len(counted), 1), (len(counted), 1)]]
    terms = task.regularizer_terms
    assert set(terms) == set(cfg.regularizer)
    torch.testing.assert_close(loss, task.loss(pred, counted) + sum(terms.values()))
    loss.backward()


def test_regularizers_of_sentences_and_their_views():
    sentences = ["experiment=stsb/vanilla", "+regularizer=ranksim", "model.inputs=4"]
    task: Any = build.task(composed("train", sentences), np.linspace(0, 5, 20)[:, None])
    given = {"input": torch.randn(6, 4), "target": torch.arange(6.0)[:, None]}
    task(given | {"meta": {"index": torch.arange(6)}})[0].backward()
    assert task.regularizer_terms["ranksim"] > 0
    one_view = ["experiment=imdb_wiki/bmc", "preset=laptop", "features.views=1"]
    for given in (sentences[:1], one_view):
        with pytest.raises(ValueError, match="conr needs 2 augmented views"):
            build.task(composed("train", [*given, "+regularizer=conr"]), np.zeros((3, 1)))


def test_a_task_without_regularizers_refuses_them(bodies: Path, tmp_path: Path):
    cfg = regularized(tiny_bodies.config(bodies, tmp_path, "ihmr/spin"))
    with pytest.raises(ValueError, match="MeshRecovery takes no regularizers"):
        build.task(cfg, build.dataset(cfg, "train").labels)


def test_a_loss_without_a_likelihood(faces: Path, tmp_path: Path):
    task: Any = build.task(
        tiny.config(faces, tmp_path, "imdb_wiki/rrt"), np.linspace(20, 60, 48)[:, None]
    )
    assert isinstance(task.loss, WeightedLoss)
    assert not hasattr(task.loss, "likelihood")
    assert isinstance(task.model.linear, nn.Linear)
    assert task.model.linear.out_features == 1
    given = batch()
    task.eval()
    assert torch.equal(task.predict(given), task.model(given["input"]))
    assert task.scales() == {}
