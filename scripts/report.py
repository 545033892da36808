"""Write the report, one page with every table and figure: see configs/report.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig

from engine.tables import report, summary


@command("report")
def main(cfg: DictConfig) -> None:
    if cfg.own and not Path(cfg.outputs).is_dir():
        raise FileNotFoundError(
            f"outputs={cfg.outputs}: no such folder, so nothing was made there. Name the folder of "
            "your runs, or write the report of results/ alone: own=false."
        )
    for path in report.write(Path(cfg.outputs), cfg.own):
        print(path)
    if cfg.publish:
        summary.publish()


if __name__ == "__main__":
    main()
