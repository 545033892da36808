"""Make the balanced test mask and the training histogram of NYUD2-DIR, from the labelled `.mat`
also the files themselves (configs/prepare_nyud2.yaml)."""

from command import command
from omegaconf import DictConfig

from engine.benchmarks import prepare


@command("prepare_nyud2")
def main(cfg: DictConfig) -> None:
    prepare.depth(cfg)


if __name__ == "__main__":
    main()
