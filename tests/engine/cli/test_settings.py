"""All settings are checked at once, before anything starts."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from engine import CONFIGS
from engine.cli import schema, settings
from engine.cli.schema import SETTINGS, TRAIN
from engine.runs.run import composed, run
from tests.engine.tiny import config

WRONG = {
    "select.metric=nope": "select.metric: unknown metric 'nope'; choose from mae",
    "select.mode=mim": "Did you mean min",
    "+select.evry=2": "select.evry: no such setting. Did you mean select.every",
    "features.mode=cache": "Did you mean cached",
    "trainer.clip=-1": "trainer.clip: expected a number > 0 or null; got -1",
    "trainer.epochs=-1": "trainer.epochs: expected a whole number >= 0; got -1",
    "trainer.epochs=true": "trainer.epochs: expected a whole number",
    "loss.likelihood.sigma=0": "loss: .*sigma.*got .*0",
    "~trainer.epochs": r"trainer.epochs is missing. Give it a value instead of removing it \(~",
    "~seed": "seed is missing",
    "trainer.batch_size=0": "trainer.batch_size: expected a whole number >= 1; got 0",
    "trainer.devices=0": "trainer.devices: expected a whole number >= 1 or one of auto",
    "trainer.devices=[0,0]": "trainer.devices: .* a list, each .* of different GPUs",
    "trainer.devices=[0]": "trainer.devices: .*CPUAccelerator.* should be an int",
    "trainer.num_nodes=2": "trainer.num_nodes: 2 nodes need .* torchrun or SLURM",
    "trainer.precision=17-mixed": "Did you mean 16-mixed",
    "trainer.deterministic=perhaps": "trainer.deterministic: expected true or false",
    "+trainer.epoch=3": "trainer.epoch: no such setting. Did you mean trainer.epochs",
    "name=../../..": "name: expected a text like imdb_wiki/bmc, without",
    "log.show=[nope]": "log.show: unknown metric 'nope'",
    "optim.optimizer.lr=abc": "optim.optimizer.lr: expected a number >= 0; got 'abc'",
    "optim.optimizer.lr=.nan": "optim.optimizer.lr",
    "+optim.optimizer.lrr=1": "torch.optim.Adam takes no lrr. Did you mean lr",
    "+dataset.sise=3": "datasets.ages.AgeDataset takes no sise. Did you mean size",
    "dataset.augment=perhaps": "dataset.augment: expected true or false or null",
    "+loss.likelihood.sgma=3": "losses.Gaussian takes no sgma. Did you mean sigma",
    "loss.strength=abc": "loss.strength: expected a number",
    "loss.prior.components=abc": "loss.prior.components: expected a whole number",
    "resume=nothing.pt": "resume: expected auto, never or a checkpoint",
    "trust=tests": "trust: expected a list",
    "+nothing=1": "nothing: no such setting",
    "dataset._target_=losses.BMC": "dataset._target_: a config may not call 'losses.BMC' there",
    "log.plot=engine.training.schedule.cosine": "log.plot: a config may not call .*cosine",
    "loss.prior._target_=losses.Huber": "loss.prior: expected Prior; got .*losses.Huber",
    "+trainr.epochs=1": "trainr: no such setting. Did you mean trainer",
    "+choose={key: nope, among: [1]}": "choose.key: no such setting: 'nope'",
    "log.plot=os.system": "log.plot: a config may not call 'os.system'",
    "optim.optimizer._target_=os.system": "optim.optimizer._target_: a config may not call",
    "trainer.accelerator=gpu": "trainer.accelerator, trainer.devices: .*No supported gpu",
    "trainer.strategy=dpp": "trainer.strategy: expected one of auto.*Did you mean ddp",
    "paths.outputs=''": "paths.outputs: expected a text",
    "+dataset._recursive_=false": "datasets.ages.AgeDataset takes no _recursive_",
}


@pytest.mark.parametrize("override", WRONG)
def test_a_wrong_setting_is_refused_before_training(override: str, faces: Path, tmp_path: Path):
    cfg = config(faces, tmp_path / "out", "imdb_wiki/gai", "trust=[tests]", override)
    with pytest.raises(ValueError, match=WRONG[override]):
        run(cfg)
    assert not list((tmp_path).rglob("*.pt"))


def test_every_setting_refuses_a_wrong_value_and_all_are_reported_at_once():
    """-1 is no count, no text, no list and no choice."""
    cfg = composed("train", ["experiment=imdb_wiki/gai", "preset=laptop"])
    known = [name for name in TRAIN if "." in name and OmegaConf.select(cfg, name) is not None]
    known += [f"{group}.{name}" for group in ("trainer", "log") for name in cfg[group]]
    known += ["seed", "resume", "trust", "images", "rerun", "freeze_bn", "warm_start"]
    known += ["features.seed", "features.augment", "optim.optimizer.lr", "optim.loss_lr"]
    for name in known:
        OmegaConf.update(cfg, name, -1)
    with pytest.raises(ValueError) as error:
        settings.check(cfg)
    found = {line.partition(":")[0] for line in str(error.value).splitlines()}
    assert found == {*known}
    hints = [hint for of_script in SETTINGS.values() for hint in of_script.values()]
    assert not [hint for hint in hints if settings.fits(hint, -1)]


def test_the_defaults_of_every_script_are_accepted():
    scripts = [path.stem for path in CONFIGS.glob("*.yaml")]
    for script in {*scripts, "reproduce/default"} - {"train"}:  # whose names are in groups
        cfg: Any = OmegaConf.load(CONFIGS / f"{script}.yaml")
        for name in [name for name in cfg if OmegaConf.is_missing(cfg, name)]:
            cfg[name] = "csv"  # a required choice or folder
        settings.check(cfg, script)


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (schema.Count, [1, 7], [0, True, None, 1.5]),
        (schema.Index, [0], [-1, "0"]),
        (schema.Number, [0, 0.5], [-1.0, math.nan, math.inf, False]),
        (schema.Positive | None, [None, 0.1], [0]),
        (schema.Folder, ["a", "imdb_wiki/bmc"], ["", "..", "a/../b", "/a", "a b"]),
        (schema.Gpus, [[0], [1, 0]], [[], [0, 0], [-1], 0]),
        (bool, [True], ["perhaps", 1]),
        (tuple[int, int] | None, [[1, 2], None], [3, "12"]),
        (Mapping[str, int], [{"a": 1}], [[]]),
        (Path, ["a"], [1]),
        (np.ndarray, ["anything", 1], []),
    ],
)
def test_types(hint: Any, right: list, wrong: list):
    assert [settings.fits(hint, value) for value in right] == [True] * len(right)
    assert [settings.fits(hint, value) for value in wrong] == [False] * len(wrong)
    assert settings.words(hint)
