"""An epoch of stage 2 on cached features beside the same epoch through the frozen backbone."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from engine.runs.run import composed, first_stage, make_fabric, run
from engine.training.loop import Loop


def measure(overrides: list[str], images: int, rounds: int) -> dict[str, float]:
    """Seconds that an epoch of so many images takes: {"cached", "backbone"}, taken in turns."""
    cfg = composed("train", [*overrides, f"trainer.epoch_size={images}"])
    stage1 = first_stage(cfg)
    if stage1 is None or cfg.features.mode != "cached":
        raise SystemExit("needs a stage-2 experiment and a preset with cached features")
    backbone = Path(run(stage1)["folder"]) / "checkpoints" / "best.pt"
    seconds: dict[str, list[float]] = {"cached": [], "backbone": []}
    with tempfile.TemporaryDirectory() as folder:
        loops = {name: _loop(cfg, name, Path(folder) / name, backbone) for name in seconds}
        for _ in range(rounds + 1):
            for name, loop in loops.items():
                start = time.perf_counter()
                loop.train_epoch()
                seconds[name].append(time.perf_counter() - start)
                loop.epoch, loop.step = loop.epoch + 1, 0
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def _loop(cfg: DictConfig, name: str, folder: Path, backbone: Path) -> Any:
    own = cfg.copy()
    with open_dict(own):
        own.log.every = 10**9
        if name == "backbone":
            own.features = {"mode": "none"}
    return Loop(make_fabric(own), own, folder, backbone)
