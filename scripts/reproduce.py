"""Reproduce every table and figure of the paper: see configs/reproduce/default.yaml."""

from command import command
from omegaconf import DictConfig

from engine.tables.reproduce import reproduce


@command("reproduce/default", free="paths")
def main(cfg: DictConfig) -> None:
    reproduce(cfg)


if __name__ == "__main__":
    main()
