"""Reproduce the paper's synthetic table and figures: see configs/synthetic.yaml."""

from command import command
from omegaconf import DictConfig

from engine.benchmarks.synthetic import reproduce


@command("synthetic")
def main(cfg: DictConfig) -> None:
    reproduce(cfg)


if __name__ == "__main__":
    main()
