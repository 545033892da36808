"""From a config to a finished run: find it or train it, after its stage-1 run if it has one.

A config that chooses a setting on validation (`choose`) is several runs; its result is the best.
The training loop is imported only where something has to be trained.
"""

import functools
import multiprocessing
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

from datasets.io.files import atomic_write
from engine import CONFIGS
from engine.cli import settings, targets
from engine.processes.pool import stop
from engine.runs import folder as runs
from engine.runs import identity, records
from engine.runs.identity import MACHINE

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# Settings that a stage-1 run takes from its stage-2 run.
SHARED = ("benchmark", "dataset", "model", "paths", "metrics", "log", "trust", "images", "protocol")
Location = tuple[Path, dict[str, str], Path | None]  # folder, identity, checkpoint of the backbone
CACHED = 256  # composed configs
_cache: dict[tuple[str, ...], DictConfig] = {}


def run(cfg: DictConfig) -> dict[str, Any]:
    """Train and evaluate what the config describes, or find it finished.

    Returns the content of metrics.json, {"metrics": {"test/bmae": ...}, ...}, and the "folder".
    """
    settings.check(cfg)
    location = _location(cfg)
    done = None if cfg.rerun or location is None else runs.finished(location[0])
    if done is None:
        done = _train(cfg, location)
    if done.get("divergence"):
        raise FloatingPointError(
            f"{done['folder']}: the run diverged: {done['divergence']} There is no result. "
            f"{runs.AGAIN}."
        ) from FloatingPointError(done["divergence"])
    return done


def _train(cfg: DictConfig, location: Location | None) -> dict[str, Any]:
    """Check what only the classes and the machine can tell, train stage 1, then this run."""
    from engine.training.build import make_fabric

    settings.check_targets(cfg)
    fabric = make_fabric(cfg)
    if location is None:
        stage1: Any = first_stage(cfg)
        location = locate(cfg, run(stage1))
    folder, found, backbone = location
    with runs.locked(folder, runs.is_main_process()):
        done = None if cfg.rerun else runs.finished(folder)  # by another process in the meantime
        if done is not None:
            return done
        if backbone is not None and not backbone.is_file():
            raise FileNotFoundError(
                f"{backbone}: stage 1 is finished, but its checkpoint is gone. Remove "
                f"{backbone.parents[1]} and run the same command again to retrain stage 1."
            )
        if runs.is_main_process():
            if why := identity.why_again(folder, found):
                from engine.training.log import print_message

                print_message(f"{cfg.name}, seed {cfg.seed}: rerun, because {why}")
            if cfg.rerun or cfg.resume == "never":
                runs.clear(folder)
            resolved = {k: v for k, v in targets.plain(cfg).items() if k != "trust"}
            if backbone is not None:
                found_by = {"checkpoint": str(backbone), "digest": identity.file_digest(backbone)}
                resolved["backbone"] |= found_by
            with atomic_write(folder / "config.yaml") as file:
                file.write(OmegaConf.to_yaml(OmegaConf.create(resolved)).encode())
            records.write(folder / identity.FILE, found)
        if cfg.choose is not None:
            choose(cfg, folder)
        else:
            launch(fabric, cfg, folder, backbone)
        done = runs.finished(folder)
    if done is None:
        raise RuntimeError(f"{folder}: the run ended without metrics.json; see its train.log")
    return done


def launch(fabric: "Fabric", cfg: DictConfig, folder: Path, backbone: Path | None) -> None:
    """Train on every device of the config."""
    from engine.training import batches, build, loop

    world = getattr(fabric.strategy, "num_processes", 1) * cfg.trainer.num_nodes
    if world > 1 and runs.is_main_process():  # refuse a batch size before processes are started
        batches.order(cfg, len(build.dataset(cfg, "train")), 0, world)
    try:
        fabric.launch(functools.partial(loop.fit, cfg=cfg, folder=folder, backbone=backbone))
    except KeyboardInterrupt:  # the ranks would train to the end
        stop(multiprocessing.active_children())
        raise
    except Exception:
        ended = runs.finished(folder) or {}
        if not ended.get("divergence"):  # else another process has recorded it
            raise


def _location(cfg: DictConfig) -> Location | None:
    """Return where the run of a config is; None as long as its stage-1 run has no result."""
    stage1, done = first_stage(cfg), None
    if stage1 is not None:
        done = result(stage1)
        if done is None or done.get("divergence"):
            return None
    return locate(cfg, done)


def locate(cfg: DictConfig, stage1: dict[str, Any] | None) -> Location:
    """Return the run's folder, its identity and the checkpoint of its backbone.

    stage1: the finished stage-1 run; its weights are known even if their file is gone.
    """
    backbone, weights = None, None
    data = cfg.paths.get(cfg.benchmark.dataset)
    if data is not None and cfg.paths.get("generate") is not None and not Path(data).exists():
        from engine.benchmarks.prepare import generate_missing

        generate_missing(cfg)
    if stage1 is not None:
        backbone = Path(stage1["folder"]) / "checkpoints" / "best.pt"
        weights = identity.file_digest(backbone) or stage1.get("weights")
    elif cfg.backbone is not None:
        backbone = Path(cfg.backbone.released)
        weights = identity.file_digest(backbone, large=None)
    found = identity.parts(cfg, weights)
    folder = Path(cfg.paths.outputs) / cfg.name / cfg.preset
    dataset, key = f"{cfg.benchmark.dataset}{cfg.paths.suffix}", records.digest(found)[:10]
    return folder / f"seed{cfg.seed}-{dataset}-{key}", found, backbone


def first_stage(cfg: DictConfig) -> DictConfig | None:
    """The config of the stage-1 run that this run builds on, with the same data, model, paths and
    machine."""
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
    """The finished run of a config, None if it is not there; a diverged one has no metrics."""
    location = _location(cfg)
    return None if location is None else runs.finished(location[0])


def composed(name: str, overrides: list[str]) -> DictConfig:
    """A config of configs/, whether or not Hydra runs this process. Composing takes a tenth of a
    second, and the rows of a table share a stage-1 config, so configs are cached."""
    key = (name, *overrides)
    if key not in _cache:
        if len(_cache) == CACHED:
            _cache.clear()
        ready = GlobalHydra.instance().is_initialized()
        with nullcontext() if ready else initialize_config_dir(str(CONFIGS), version_base="1.3"):
            _cache[key] = compose(name, list(overrides))
    return _cache[key].copy()


def choose(cfg: DictConfig, folder: Path) -> None:
    """Run the config for each value of `choose.key`; the best on validation is the result.

    `choose.settings` {key: value} apply to these runs only, for example to hold out training data
    for validation; the best value is then run once more without them. A value whose run diverges
    is skipped and listed in metrics.json.
    """
    start, changes = time.time(), cfg.choose.get("settings") or {}
    tried, diverged = [], {}
    for value in cfg.choose.among:
        try:
            tried.append((value, run(_with(cfg, {**changes, cfg.choose.key: value}))))
        except FloatingPointError as error:
            diverged[str(value)] = str(error.__cause__ or error)
    if not tried:
        raise FloatingPointError(f"{cfg.choose.key}: every value diverged: {diverged}")
    score = f"val/{cfg.select.metric}"
    sign = 1 if cfg.select.mode == "min" else -1
    value, best = min(tried, key=lambda pair: sign * pair[1]["metrics"][score])
    if changes:
        best = run(_with(cfg, {cfg.choose.key: value}))
    if not runs.is_main_process():
        return
    for name in (runs.PREDICTIONS, runs.REPLICATES):
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
    records.write(folder / "metrics.json", content)


def _with(cfg: DictConfig, changes: dict[str, Any]) -> DictConfig:
    one = cfg.copy()
    with open_dict(one):
        one.choose = None
        for key, value in changes.items():
            OmegaConf.update(one, key, value)
    return one
