"""Compute the metrics of a finished run or a released checkpoint; see configs/evaluate.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig


def print_metrics(cfg: DictConfig) -> None:
    from lightning_fabric import Fabric

    from datasets.io.files import writable
    from engine.evaluation import evaluate
    from engine.runs import records

    if (cfg.run is None) == (cfg.released is None):
        raise ValueError("Give either run=<folder> or released=<file>; see configs/evaluate.yaml.")
    if cfg.run is not None:
        folder = Path(cfg.run)
        data, task, metrics = evaluate.finished_run(
            folder, cfg.checkpoint, cfg.trust, cfg.max_pixels, cfg.max_bytes
        )
        name = f"evaluation_{cfg.checkpoint}_{cfg.split}.json"
    else:
        data, folder = cfg, Path(cfg.paths.outputs) / "released"
        task, metrics = evaluate.released_model(Path(cfg.released), cfg.layout, cfg)
        name = f"{Path(cfg.released).stem}_{cfg.split}.json"
    writable(folder)
    fabric = Fabric(accelerator=cfg.accelerator, devices=1)
    report = evaluate.report(fabric, data, task, metrics, cfg.split, cfg.batch_size)
    for key, value in report.items():
        print(f"{cfg.split}/{key:<14} {value:.4f}")
    records.write(folder / name, report)


main = command("evaluate", print_metrics)

if __name__ == "__main__":
    main()
