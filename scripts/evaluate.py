"""Evaluate a finished run or a released checkpoint: see configs/evaluate.yaml."""

import json
import sys
from pathlib import Path

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import hydra  # noqa: E402
from lightning_fabric import Fabric  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from engine import evaluate  # noqa: E402
from engine.files import whole  # noqa: E402


@hydra.main(version_base="1.3", config_path="../configs", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    if (cfg.run is None) == (cfg.released is None):
        raise ValueError("give either run=<folder> or released=<file>; see configs/evaluate.yaml")
    if cfg.run is not None:
        folder = Path(cfg.run)
        data, objective, metrics = evaluate.finished_run(folder, cfg.checkpoint)
        name = f"evaluation_{cfg.checkpoint}_{cfg.split}.json"
    else:
        data, folder = cfg, Path(cfg.paths.outputs) / "released"
        objective, metrics = evaluate.released_model(Path(cfg.released), cfg.layout, cfg)
        name = f"{Path(cfg.released).stem}_{cfg.split}.json"
    fabric = Fabric(accelerator=cfg.accelerator, devices=1)
    report = evaluate.report(fabric, data, objective, metrics, cfg.split, cfg.batch_size)
    for key, value in report.items():
        print(f"{cfg.split}/{key:<14} {value:.4f}")
    with whole(folder / name) as file:
        file.write(json.dumps(report, indent=2).encode() + b"\n")


if __name__ == "__main__":
    main()
