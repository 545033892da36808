"""Make a table of the paper, running what is missing: see configs/table.yaml."""

from command import command
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from engine.tables.make import make, passed_on


@command("table")
def main(cfg: DictConfig) -> None:
    given = list(HydraConfig.get().overrides.task)
    for path in make(cfg, [*passed_on(given), *cfg.overrides]):
        print(path)


if __name__ == "__main__":
    main()
