"""An epoch of stage 2 on cached features beside the same epoch through the frozen backbone."""

from command import command
from omegaconf import DictConfig

from engine.speed.features import measure


@command("benchmark_features")
def main(cfg: DictConfig) -> None:
    taken = measure(list(cfg.overrides), cfg.images, cfg.rounds)
    for name, seconds in taken.items():
        print(f"{name:9} {seconds:9.4f} s an epoch of {cfg.images} images")
    print(f"cached features are {taken['backbone'] / taken['cached']:.0f} x faster")


if __name__ == "__main__":
    main()
