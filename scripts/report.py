"""Write the report, one page with every table and figure: see configs/report.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig

from engine import RESULTS
from engine.tables.report import forest, render, summary


@command("report")
def main(cfg: DictConfig) -> None:
    if cfg.own and not Path(cfg.outputs).is_dir():
        raise FileNotFoundError(
            f"outputs={cfg.outputs}: no such folder. Name the folder of your runs, or report "
            "results/ alone with own=false."
        )
    if cfg.publish:
        summary.publish()
        forest.write(RESULTS)
    for path in render.write(Path(cfg.outputs), cfg.own):
        print(path)


if __name__ == "__main__":
    main()
