"""All settings are checked at once, before anything starts."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from engine import CONFIGS
from engine.cli import settings
from engine.runs.run import composed, run
from tests.engine.tiny import config

WRONG = {
    "select.metric=nope": "select.metric: unknown metric 'nope'; choose from mae",
    "select.mode=nope": "select.mode: expected one of min, max; got 'nope'",
    "select.mode=mim": "Did you mean min",
    "select.which=first": "select.which: expected one of best, last",
    "+select.evry=2": "select.evry: no such setting. Did you mean select.every",
    "features.mode=cache": "Did you mean cached",
    "+features.dtype=int8": "features.dtype: expected one of float32, float16; got 'int8'",
    "+features.views=0": "features.views: expected a whole number >= 1; got 0",
    "trainer.clip=-1": "trainer.clip: expected a number > 0 or null; got -1",
    "trainer.epochs=-1": "trainer.epochs: expected a whole number >= 0; got -1",
    "trainer.epochs=true": "trainer.epochs: expected a whole number",
    "trainer.epochs=null": "trainer.epochs: expected a whole number",
    "trainer.epoch_size=0": "trainer.epoch_size",
    "trainer.eval_batch_size=0": "trainer.eval_batch_size",
    "trainer.accumulate=0": "trainer.accumulate",
    "trainer.workers=-1": "trainer.workers",
    "trainer.num_nodes=0": "trainer.num_nodes",
    "trainer.checkpoint_every=-1": "trainer.checkpoint_every",
    "log.every=0": "log.every",
    "optim.loss_lr=abc": "optim.loss_lr",
    "loss.likelihood.sigma=0": "loss: .*sigma.*got .*0",
    "~trainer.epochs": r"trainer.epochs is missing. Give it a value instead of removing it \(~",
    "~log.every": "log.every is missing",
    "~seed": "seed is missing",
    "freeze_bn=perhaps": "freeze_bn",
    "rerun=perhaps": "rerun",
    "trainer.batch_size=0": "trainer.batch_size: expected a whole number >= 1; got 0",
    "trainer.devices=0": "trainer.devices: expected a whole number >= 1 or one of auto",
    "trainer.devices=[]": "trainer.devices",
    "trainer.devices=[0,0]": "trainer.devices: .* a list, each .* of different GPUs",
    "trainer.devices=[0]": "trainer.devices: .*CPUAccelerator.* should be an int",
    "trainer.num_nodes=2": "trainer.num_nodes: 2 nodes need .* torchrun or SLURM",
    "trainer.accelerator=gpux": "Did you mean gpu",
    "trainer.precision=17-mixed": "Did you mean 16-mixed",
    "trainer.deterministic=perhaps": "trainer.deterministic: expected true or false",
    "+trainer.epoch=3": "trainer.epoch: no such setting. Did you mean trainer.epochs",
    "seed=-1": "seed: expected a whole number >= 0; got -1",
    "name=../../..": "name: expected a text like imdb_wiki/bmc, without",
    "name=a/../b": "name: expected a text like",
    "log.show=[nope]": "log.show: unknown metric 'nope'",
    "optim.optimizer.lr=abc": "optim.optimizer.lr: expected a number >= 0; got 'abc'",
    "optim.optimizer.lr=.nan": "optim.optimizer.lr",
    "optim.optimizer.lr=.inf": "optim.optimizer.lr",
    "+optim.optimizer.lrr=1": "torch.optim.Adam takes no lrr. Did you mean lr",
    "optim.optimizer.weight_decay=-1": "optim.optimizer.weight_decay",
    "dataset.size=0": "dataset.size",
    "+dataset.sise=3": "datasets.ages.AgeDataset takes no sise. Did you mean size",
    "dataset.augment=perhaps": "dataset.augment: expected true or false or null",
    "+loss.likelihood.sgma=3": "losses.Gaussian takes no sgma. Did you mean sigma",
    "loss.strength=abc": "loss.strength: expected a number",
    "loss.prior.components=abc": "loss.prior.components: expected a whole number",
    "resume=nothing.pt": "resume: expected auto, never or a checkpoint",
    "images=hash": "images: expected one of times, content",
    "trust=tests": "trust: expected a list",
    "+nothing=1": "nothing: no such setting",
    "dataset._target_=losses.BMC": "dataset._target_: a config may not call 'losses.BMC' there",
    "log.plot=engine.training.schedule.cosine": "log.plot: a config may not call .*cosine",
    "loss.prior._target_=losses.Huber": "loss.prior: expected Prior; got .*losses.Huber",
    "+trainr.epochs=1": "trainr: no such setting. Did you mean trainer",
    "+choose={key: nope, among: [1]}": "choose.key: no such setting: 'nope'",
    "log.plot=os.system": "log.plot: a config may not call 'os.system'",
    "log.plot=engine.training.log.nope": "log.plot",
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


def test_all_problems_are_reported_at_once(faces: Path, tmp_path: Path):
    wrong = ("trainer.epochs=-1", "select.mode=nope", "seed=x")
    with pytest.raises(ValueError, match=r"seed:(.|\n)*trainer.epochs:(.|\n)*select.mode:"):
        run(config(faces, tmp_path, "imdb_wiki/gai", *wrong))


SCRIPTS = {
    "evaluate": "split=tset",
    "table": "jobs=0",
    "synthetic": "seeds=0",
    "prepare_mini": "images=abc",
    "reproduce/default": "data=toy",
    "prepare_age": "pack=0",
    "report": "own=perhaps",
    "speed": "rounds=0",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_its_settings_checked(script: str):
    more = {"table": ["table=imdb_wiki"], "prepare_age": ["source=agedb", "root=a"]}.get(script, [])

    def config_of(*overrides: str):
        if script.startswith("reproduce"):
            defaults = OmegaConf.load(CONFIGS / f"{script}.yaml")
            return OmegaConf.merge(defaults, OmegaConf.from_dotlist(list(overrides)))
        return composed(script, [*more, *overrides])

    settings.check(config_of(), script)  # the defaults are right
    wrong = config_of(SCRIPTS[script])
    with pytest.raises(ValueError, match=SCRIPTS[script].split("=")[0]):
        settings.check(wrong, script)
