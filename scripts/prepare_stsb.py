"""Make stsb.npz, frozen vectors of the sentences of STS-B-DIR (configs/prepare_stsb.yaml)."""

from command import command
from omegaconf import DictConfig

from engine.benchmarks import prepare


@command("prepare_stsb")
def main(cfg: DictConfig) -> None:
    prepare.similarity(cfg)


if __name__ == "__main__":
    main()
