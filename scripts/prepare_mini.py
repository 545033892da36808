"""Generate the mini datasets in the on-disk formats of the real ones: see
configs/prepare_mini.yaml."""

from command import command
from omegaconf import DictConfig

from engine.benchmarks.mini import generate


@command("prepare_mini")
def main(cfg: DictConfig) -> None:
    generate(cfg)


if __name__ == "__main__":
    main()
