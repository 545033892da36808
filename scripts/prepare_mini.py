"""Draw the mini datasets in the on-disk formats of the real ones: see configs/prepare_mini.yaml."""

import functools
import sys
from pathlib import Path
from typing import Any

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import hydra  # noqa: E402
from omegaconf import DictConfig, OmegaConf  # noqa: E402
from tqdm import tqdm  # noqa: E402

from datasets.imdb_wiki import read_csv  # noqa: E402
from scripts.prepare_age import report  # noqa: E402
from synthetic.bodies import write_bodies  # noqa: E402
from synthetic.faces import write_faces  # noqa: E402
from synthetic.rooms import write_rooms  # noqa: E402


def draw(cfg: DictConfig) -> None:
    if "faces" in cfg.draw:
        draw_faces(cfg)
    if "rooms" in cfg.draw:
        draw_rooms(cfg)
    if "bodies" in cfg.draw:
        draw_bodies(cfg.bodies, cfg.seed)


def draw_bodies(cfg: DictConfig, seed: int) -> None:
    counts: Any = OmegaConf.to_container(cfg.counts)
    bar = functools.partial(tqdm, desc="drawing bodies")
    drawn = write_bodies(cfg.folder, counts, cfg.size, seed, cfg.poses, bar)
    print(f"{cfg.folder}: {'drawn' if drawn else 'already there, nothing to do'}.")


def draw_faces(cfg: DictConfig) -> None:
    drawn = write_faces(
        cfg.folder, cfg.images, cfg.size, cfg.cap, cfg.seed, lambda x: tqdm(x, desc="drawing faces")
    )
    print(f"{cfg.folder}: {'drawn' if drawn else 'already there, nothing to do'}.")
    report(read_csv(Path(cfg.folder) / "imdb_wiki.csv"))


def draw_rooms(cfg: DictConfig) -> None:
    rooms = cfg.rooms
    drawn = write_rooms(
        rooms.folder, rooms.train, rooms.test, cfg.seed, lambda x: tqdm(x, desc="casting rooms")
    )
    print(f"{rooms.folder}: {'drawn' if drawn else 'already there, nothing to do'}.")
    print(f"train {rooms.train:,}, test {rooms.test:,} frames")


@hydra.main(version_base="1.3", config_path="../configs", config_name="prepare_mini")
def main(cfg: DictConfig) -> None:
    draw(cfg)


if __name__ == "__main__":
    main()
