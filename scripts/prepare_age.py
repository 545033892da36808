"""Make an age dataset's CSV, balanced split and packed store (configs/prepare_age.yaml)."""

from command import command
from omegaconf import DictConfig

from engine.benchmarks import prepare


@command("prepare_age")
def main(cfg: DictConfig) -> None:
    prepare.ages(cfg)


if __name__ == "__main__":
    main()
