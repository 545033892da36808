"""Draw the mini datasets in the on-disk formats of the real ones: see configs/prepare_mini.yaml."""

import functools
import io
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from datasets.ages import read_csv
from engine.benchmarks.age import describe
from engine.processes.pool import side_by_side
from synthetic.mini.bodies import Progress, write_bodies
from synthetic.mini.faces import write_faces
from synthetic.mini.rooms import write_rooms


def draw(cfg: DictConfig) -> None:
    """Draw what is asked for, side by side if it is several."""
    unknown = [name for name in cfg.draw if name not in DRAW]
    if unknown:
        raise SystemExit(f"draw: {', '.join(unknown)} unknown; choose out of {', '.join(DRAW)}.")
    if len(cfg.draw) == 1:
        DRAW[cfg.draw[0]](cfg, functools.partial(tqdm, desc=f"drawing {cfg.draw[0]}", disable=None))
        return
    tasks = [functools.partial(draw_quietly, cfg, name) for name in cfg.draw]
    shares = [0.0] * len(tasks)
    with tqdm(total=100, desc=f"drawing {', '.join(cfg.draw)}", unit="%", disable=None) as bar:

        def advance(i: int, share: float | None) -> None:
            shares[i] = 1.0 if share is None else share
            bar.update(int(100 * sum(shares) / len(shares)) - bar.n)

        for said in side_by_side(tasks, len(os.sched_getaffinity(0)), advance):
            print(said, end="")


def draw_quietly(cfg: DictConfig, name: str, tell: Callable[[float], None]) -> str:
    """Draw beside others; what there is to say is returned."""

    def progress(items: Any) -> Iterator:
        for i, item in enumerate(items):
            if i % 50 == 0:
                tell(i / len(items))
            yield item

    with redirect_stdout(io.StringIO()) as said:
        DRAW[name](cfg, progress)
    return said.getvalue()


def draw_faces(cfg: DictConfig, progress: Progress) -> None:
    drawn = write_faces(cfg.folder, cfg.images, cfg.size, cfg.cap, cfg.seed, progress)
    print(f"{cfg.folder}: {'drawn' if drawn else 'already there, nothing to do'}.")
    print(describe(read_csv(Path(cfg.folder) / "imdb_wiki.csv")))


def draw_rooms(cfg: DictConfig, progress: Progress) -> None:
    rooms = cfg.rooms
    drawn = write_rooms(rooms.folder, rooms.train, rooms.test, cfg.seed, progress)
    print(f"{rooms.folder}: {'drawn' if drawn else 'already there, nothing to do'}.")
    print(f"train {rooms.train:,}, test {rooms.test:,} frames")


def draw_bodies(cfg: DictConfig, progress: Progress) -> None:
    bodies = cfg.bodies
    counts: Any = OmegaConf.to_container(bodies.counts)
    drawn = write_bodies(bodies.folder, counts, bodies.size, cfg.seed, bodies.poses, progress)
    print(f"{bodies.folder}: {'drawn' if drawn else 'already there, nothing to do'}.")


DRAW: dict[str, Callable[[DictConfig, Progress], None]] = {
    "bodies": draw_bodies,  # the longest first
    "faces": draw_faces,
    "rooms": draw_rooms,
}
