"""Images a second of the age input pipeline beside a plain PIL dataset, on one core."""

from command import command
from omegaconf import DictConfig

from engine.speed.loader import measure


@command("benchmark_loader")
def main(cfg: DictConfig) -> None:
    rates = measure(cfg.images, cfg.side, cfg.size, cfg.rounds)
    for name, rate in rates.items():
        print(f"{name:16} {rate:8.0f} images/s a core   {rate / rates['plain']:5.2f} x plain")


if __name__ == "__main__":
    main()
