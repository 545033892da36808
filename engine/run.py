"""From a config to a finished run: find it, or run it, stage 1 first where it builds on one.

    run(stage 2) = find or run(stage 1), then train the head on its frozen features

A config with a knob to be chosen on validation (`choose`) is several runs; its result is the best.
"""

import functools
import os
import shutil
import time
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import get_class
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from omegaconf import DictConfig, OmegaConf, open_dict

from datasets.files import whole
from engine import CONFIGS, train
from engine.runs import (
    DRAWS,
    MACHINE,
    PREDICTIONS,
    clear,
    finish,
    finished,
    folder,
    identity,
    is_main_process,
    locked,
)

SHARED = ("dataset", "model", "paths", "metrics", "log")  # what stage 1 takes from stage 2


def run(cfg: DictConfig) -> dict[str, Any]:
    """Train and evaluate what the config describes, or find it done.

    Returns what metrics.json holds, {"metrics": {"test/bmae": ...}, ...}, and the "folder".
    """
    check(cfg)
    stage1 = first_stage(cfg)
    backbone = released_backbone(cfg)
    if stage1 is not None:
        backbone = Path(run(stage1)["folder"]) / "checkpoints" / "best.pt"
    place = folder(cfg, key(cfg, stage1))
    with locked(place, is_main_process()):
        done = finished(place)
        if done is not None and not cfg.rerun:
            return done
        if is_main_process():
            if cfg.rerun or cfg.resume == "never":
                clear(place)
            save_config(cfg, place, backbone)
        if cfg.choose is not None:
            choose(cfg, place)
        else:
            fabric = make_fabric(cfg)
            fit = functools.partial(train.fit, cfg=cfg, folder=place, backbone=backbone)
            fabric.launch(fit)
        done = finished(place)
        if done is None:
            raise RuntimeError(f"{place}: the run ended without metrics.json; see its train.log")
        return done


def save_config(cfg: DictConfig, place: Path, backbone: Path | None) -> None:
    """config.yaml, resolved, with the very checkpoint of stage 1 that the run builds on."""
    resolved = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True))  # pyright: ignore
    if backbone is not None:
        resolved.backbone.checkpoint = str(backbone)
    with whole(place / "config.yaml") as file:
        file.write(OmegaConf.to_yaml(resolved).encode())


def check(cfg: DictConfig) -> None:
    """What can be refused before anything is loaded."""
    frozen = cfg.backbone is not None or getattr(get_class(cfg.model["_target_"]), "fixed", False)
    if cfg.features.mode == "cached" and not (frozen and cfg.freeze_bn):
        raise ValueError(
            "features=cached needs a frozen backbone (stage 2) with frozen batch-norm; got "
            f"backbone={cfg.backbone}, freeze_bn={cfg.freeze_bn}. Set freeze_bn=true, or "
            "features=none."
        )


def released_backbone(cfg: DictConfig) -> Path | None:
    """The released checkpoint that this run builds on instead of a stage 1, if it names one."""
    path = None if cfg.backbone is None else cfg.backbone.get("released")
    if path is not None and not Path(path).is_file():
        raise FileNotFoundError(
            f"backbone.released={path}: no such checkpoint. Name the base model's file, or leave "
            "it out to train stage 1."
        )
    return None if path is None else Path(path)


def first_stage(cfg: DictConfig) -> DictConfig | None:
    """The config of the stage 1 that this run builds on: its own experiment, the same data, model,
    paths and machine."""
    if cfg.backbone is None or cfg.backbone.get("released") is not None:
        return None
    names = [f"experiment={cfg.backbone.experiment}", f"preset={cfg.preset}"]
    stage1 = composed("train", [*names, f"seed={cfg.backbone.seed}", *cfg.backbone.overrides])
    with open_dict(stage1):
        for name in SHARED:
            stage1[name] = cfg[name]
        for name in MACHINE:
            stage1.trainer[name] = cfg.trainer[name]
    return stage1


def key(cfg: DictConfig, stage1: DictConfig | None) -> str:
    """The identity of a run, that of its stage 1 included."""
    return identity(cfg, None if stage1 is None else identity(stage1))


def composed(name: str, overrides: list[str]) -> DictConfig:
    """A config of configs/, whether or not Hydra runs this process."""
    if GlobalHydra.instance().is_initialized():
        return compose(name, overrides)
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(name, overrides)


def choose(cfg: DictConfig, place: Path) -> None:
    """Run the config for each value of `choose.key`; the best on validation is the result.

    Where validation takes part of the training data, `choose.settings` {key: value} says so: it
    goes for these runs only, and the best value is then run once more without it. A value at which
    the run diverges is out, and metrics.json says so.
    """
    start, settings = time.time(), cfg.choose.get("settings") or {}
    tried, diverged = [], {}
    for value in cfg.choose.among:
        try:
            tried.append((value, run(_with(cfg, {**settings, cfg.choose.key: value}))))
        except FloatingPointError as error:
            diverged[str(value)] = str(error)
    if not tried:
        raise FloatingPointError(f"{cfg.choose.key}: every value diverged: {diverged}")
    score = f"val/{cfg.select.metric}"
    sign = 1 if cfg.select.mode == "min" else -1
    value, best = min(tried, key=lambda pair: sign * pair[1]["metrics"][score])
    if settings:
        best = run(_with(cfg, {cfg.choose.key: value}))
    if not is_main_process():
        return
    for name in (PREDICTIONS, DRAWS):
        if (Path(best["folder"]) / name).is_file():
            shutil.copyfile(Path(best["folder"]) / name, place / name)
    content = {
        **best,
        "chosen": {cfg.choose.key: value},
        "candidates": {str(v): done["metrics"][score] for v, done in tried},
        "candidate_runs": {str(v): done["folder"] for v, done in tried},
        "diverged": diverged,
        "chosen_run": best["folder"],
        "seconds": time.time() - start,
    }
    finish(place, content)


def _with(cfg: DictConfig, changes: dict[str, Any]) -> DictConfig:
    """The config with one value of the knob, and nothing left to choose."""
    one = cfg.copy()
    with open_dict(one):
        one.choose = None
        for key, value in changes.items():
            OmegaConf.update(one, key, value)
    return one


def make_fabric(cfg: DictConfig) -> Fabric:
    """Devices, nodes and precision as configured.

    Several devices of one machine are spawned from here; torchrun and SLURM have done it already.
    """
    trainer = cfg.trainer
    strategy = trainer.strategy
    if strategy == "auto" and (trainer.devices not in (1, "auto") or trainer.num_nodes > 1):
        started = any(name in os.environ for name in ("TORCHELASTIC_RUN_ID", "SLURM_PROCID"))
        strategy = "ddp" if started or trainer.num_nodes > 1 else "ddp_spawn"
    fabric = Fabric(
        accelerator=trainer.accelerator,
        devices=trainer.devices,
        num_nodes=trainer.num_nodes,
        strategy=strategy,
        precision=trainer.precision,
    )
    return whole_labels(fabric)


def whole_labels(fabric: Fabric) -> Fabric:
    """In mixed precision a batch is given to the model as it is: Fabric would round the labels to
    half precision, too, while autocast takes care of the images.
    """
    precision: Any = fabric.strategy.precision
    if isinstance(precision, MixedPrecision):
        precision.convert_input = _as_it_is
    return fabric


def _as_it_is(data: Any) -> Any:
    return data
