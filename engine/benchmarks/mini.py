"""Generate the mini datasets in the on-disk formats of the real ones: see
configs/prepare_mini.yaml."""

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from datasets.ages import read_csv
from engine.benchmarks.age import describe
from engine.processes.pool import side_by_side
from synthetic.mini.bodies import write_bodies
from synthetic.mini.faces import write_faces
from synthetic.mini.folder import Progress
from synthetic.mini.rooms import write_rooms


def faces(cfg: DictConfig, progress: Progress) -> str:
    new = write_faces(cfg.folder, cfg.images, cfg.size, cfg.cap, cfg.seed, progress)
    return f"{_status(cfg.folder, new)}\n{describe(read_csv(Path(cfg.folder) / 'imdb_wiki.csv'))}"


def rooms(cfg: DictConfig, progress: Progress) -> str:
    new = write_rooms(cfg.rooms.folder, cfg.rooms.train, cfg.rooms.test, cfg.seed, progress)
    counts = f"train {cfg.rooms.train:,}, test {cfg.rooms.test:,} frames"
    return f"{_status(cfg.rooms.folder, new)}\n{counts}"


def bodies(cfg: DictConfig, progress: Progress) -> str:
    own, counts = cfg.bodies, OmegaConf.to_container(cfg.bodies.counts)
    new = write_bodies(own.folder, counts, own.size, cfg.seed, own.poses, progress)  # pyright: ignore
    return _status(own.folder, new)


def _status(folder: str, new: bool) -> str:
    return f"{folder}: {'generated' if new else 'already there, nothing to do'}."


GENERATORS = {"bodies": bodies, "faces": faces, "rooms": rooms}


def generate(cfg: DictConfig) -> None:
    """Generate the datasets of `cfg.draw` in parallel processes, and print what was done."""
    tasks = [functools.partial(_generate, cfg, name) for name in cfg.draw]
    shares = [0.0] * len(tasks)
    title = f"generating {', '.join(cfg.draw)}"
    with tqdm(total=100, desc=title, unit="%", disable=None) as bar:

        def advance(i: int, share: float | None) -> None:
            shares[i] = 1.0 if share is None else share
            bar.update(int(100 * sum(shares) / len(shares)) - bar.n)

        messages = side_by_side(tasks, len(os.sched_getaffinity(0)), advance)
    print("\n".join(messages))


def _generate(cfg: DictConfig, name: str, report: Callable[[float], None]) -> str:
    def progress(items: Any) -> Iterator:
        for i, item in enumerate(items):
            if i % 50 == 0:
                report(i / len(items))
            yield item

    return GENERATORS[name](cfg, progress)
