"""Save the network of a finished IHMR run in half precision: see configs/save_network.yaml."""

from pathlib import Path

from command import command
from omegaconf import DictConfig


def save_network(cfg: DictConfig) -> None:
    from engine.benchmarks.bodies.network import save

    path = Path(cfg.output)
    save(Path(cfg.run), path)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MB")


main = command("save_network", save_network)

if __name__ == "__main__":
    main()
