"""Random search for a setting in which the fast losses differ from their definition.

python scripts/search_losses.py settings=10000 seed=0
"""

from command import command
from omegaconf import DictConfig

from engine.speed.search import search


@command("search_losses")
def main(cfg: DictConfig) -> None:
    found = search(cfg.settings, cfg.seed, progress=True)
    for name, count in sorted(found.pop("pairs").items()):
        print(f"{count:6d}  {name}")
    for name, value in found.items():
        print(f"{name}: {value}")
    if not found["worst"] <= cfg.tolerance:
        raise SystemExit(f"a fast loss is off by more than {cfg.tolerance} of the largest gradient")


if __name__ == "__main__":
    main()
