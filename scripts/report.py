"""Write the report, one page with every table and figure: see configs/report.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig


def write(cfg: DictConfig) -> None:
    from engine import RESULTS
    from engine.tables.report import forest, render, summary

    outputs = Path(cfg.outputs)
    if cfg.own and not outputs.is_dir():
        print(f"{outputs}: no such folder, so the report shows results/ alone.")
    if cfg.publish:
        summary.publish()
        forest.write(RESULTS)
    for path in render.write(outputs, cfg.own):
        print(path)


main = command("report", write)

if __name__ == "__main__":
    main()
