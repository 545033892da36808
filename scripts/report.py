"""Write the report, one page with every table and figure: see configs/report.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig

from engine import RESULTS
from engine.tables.report import forest, render, summary


@command("report")
def main(cfg: DictConfig) -> None:
    outputs = Path(cfg.outputs)
    if cfg.own and not outputs.is_dir():
        print(f"{outputs}: no such folder, so the report shows results/ alone.")
    if cfg.publish:
        summary.publish()
        forest.write(RESULTS)
    for path in render.write(outputs, cfg.own):
        print(path)


if __name__ == "__main__":
    main()
