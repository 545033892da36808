"""Save the network of a finished IHMR run in half precision: see configs/save_network.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig

from engine.benchmarks.bodies.network import save


@command("save_network")
def main(cfg: DictConfig) -> None:
    path = Path(cfg.output)
    save(Path(cfg.run), path)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MB")


if __name__ == "__main__":
    main()
