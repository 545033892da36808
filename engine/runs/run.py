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
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from omegaconf import DictConfig, OmegaConf, open_dict

from datasets.io.files import atomic_write
from engine import CONFIGS
from engine.cli import settings, targets
from engine.runs import identity, records
from engine.runs.folder import (
    AGAIN,
    DRAWS,
    PREDICTIONS,
    clear,
    finish,
    finished,
    is_main_process,
    locked,
    run_folder,
)
from engine.runs.identity import MACHINE
from engine.training import build
from engine.training import loop as train
from engine.training.log import print_message

# What stage 1 takes from stage 2.
SHARED = ("dataset", "model", "paths", "metrics", "log", "trust", "images")


def run(cfg: DictConfig) -> dict[str, Any]:
    """Train and evaluate what the config describes, or find it done.

    Returns what metrics.json holds, {"metrics": {"test/bmae": ...}, ...}, and the "folder".
    """
    check(cfg)
    stage1 = first_stage(cfg)
    backbone, weights = released_backbone(cfg), None
    if stage1 is not None:
        backbone, weights = weights_of(run(stage1))
    found = identity.parts(cfg, weights)
    folder = run_folder(cfg, identity.key(found))
    with locked(folder, is_main_process()):
        done = None if cfg.rerun else finished(folder)
        if done is not None:
            return converged(done)
        if backbone is not None and not backbone.is_file():
            raise FileNotFoundError(
                f"{backbone}: stage 1 is finished, but its checkpoint is gone. Remove "
                f"{backbone.parents[1]} and start the same command again: stage 1 is made anew."
            )
        if is_main_process():
            if why := identity.why_again(folder, found):
                print_message(f"{cfg.name}, seed {cfg.seed}: run again, as {why}")
            if cfg.rerun or cfg.resume == "never":
                clear(folder)
            save_config(cfg, folder, backbone)
            records.write(folder / identity.FILE, found)
        if cfg.choose is not None:
            choose(cfg, folder)
        else:
            fabric = make_fabric(cfg)
            world = getattr(fabric.strategy, "num_processes", 1) * cfg.trainer.num_nodes
            if world > 1 and is_main_process():  # before others are started, who would say it late
                train.order(cfg, len(build.dataset(cfg, "train")), 0, world)
            fit = functools.partial(train.fit, cfg=cfg, folder=folder, backbone=backbone)
            try:
                fabric.launch(fit)
            except Exception:
                converged(finished(folder) or {})  # what another process found is said here
                raise
        done = finished(folder)
        if done is None:
            raise RuntimeError(f"{folder}: the run ended without metrics.json; see its train.log")
        return converged(done)


def converged(done: dict[str, Any]) -> dict[str, Any]:
    """A finished run, unless it diverged: then there is no result, and the error says so."""
    if done.get("divergence"):
        raise FloatingPointError(
            f"the run diverged: {done['divergence']} There is no result; {AGAIN.lower()}."
        ) from FloatingPointError(done["divergence"])
    return done


def weights_of(stage1: dict[str, Any]) -> tuple[Path, str | None]:
    """The checkpoint of a finished stage 1 and its digest, which stays when the file is gone."""
    path = Path(stage1["folder"]) / "checkpoints" / "best.pt"
    return path, identity.file_digest(path) or stage1.get("weights")


def save_config(cfg: DictConfig, folder: Path, backbone: Path | None) -> None:
    """config.yaml, resolved, with the very checkpoint of stage 1 that the run builds on."""
    plain = targets.plain(cfg)
    plain.pop("trust")  # whoever reads it decides anew
    resolved: Any = OmegaConf.create(plain)
    if backbone is not None:
        resolved.backbone.checkpoint = str(backbone)
        resolved.backbone.digest = identity.file_digest(backbone)
    with atomic_write(folder / "config.yaml") as file:
        file.write(OmegaConf.to_yaml(resolved).encode())


def check(cfg: DictConfig) -> None:
    """What can be refused before anything is loaded."""
    settings.check(cfg)
    model = targets.find(cfg.model["_target_"], cfg.trust)
    frozen = cfg.backbone is not None or getattr(model, "always_frozen", False)
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


def result(cfg: DictConfig) -> dict[str, Any] | None:
    """What `run` would find, if the run is there; a diverged one has no metrics."""
    stage1, weights = first_stage(cfg), None
    if stage1 is not None:
        done = result(stage1)
        if done is None or done.get("divergence"):
            return None
        _, weights = weights_of(done)
    return finished(run_folder(cfg, identity.key(identity.parts(cfg, weights))))


def composed(name: str, overrides: list[str]) -> DictConfig:
    """A config of configs/, whether or not Hydra runs this process."""
    hydra = GlobalHydra.instance()
    if hydra.is_initialized():
        sources = str(hydra.config_loader().get_search_path())
        return _composed(name, tuple(overrides), sources).copy()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return composed(name, overrides)


@functools.lru_cache(maxsize=256)
def _composed(name: str, overrides: tuple[str, ...], sources: str) -> DictConfig:
    """Composing takes a tenth of a second, and all rows of a table share a stage 1."""
    return compose(name, list(overrides))


def choose(cfg: DictConfig, folder: Path) -> None:
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
            diverged[str(value)] = str(error.__cause__ or error)
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
        if (made := Path(best["folder"]) / name).is_file():
            with made.open("rb") as source, atomic_write(folder / name) as file:
                shutil.copyfileobj(source, file)
    content = {
        **best,
        "chosen": {cfg.choose.key: value},
        "candidates": {str(v): done["metrics"][score] for v, done in tried},
        "candidate_runs": {str(v): done["folder"] for v, done in tried},
        "diverged": diverged,
        "chosen_run": best["folder"],
        "seconds": time.time() - start,
    }
    finish(folder, content)


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
    return labels_in_full(fabric)


def labels_in_full(fabric: Fabric) -> Fabric:
    """In mixed precision a batch is given to the model as it is: Fabric would round the labels to
    half precision, too, while autocast takes care of the images.
    """
    precision: Any = fabric.strategy.precision
    if isinstance(precision, MixedPrecision):
        precision.convert_input = _as_it_is
    return fabric


def _as_it_is(data: Any) -> Any:
    return data
