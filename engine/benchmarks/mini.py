"""Generate the mini datasets in the on-disk formats of the real ones: see
configs/prepare_mini.yaml."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from datasets.ages import read_csv
from engine.benchmarks.age import describe
from engine.processes.pool import side_by_side
from engine.runs.run import composed
from synthetic.mini.bodies import write_bodies
from synthetic.mini.faces import write_faces
from synthetic.mini.rooms import write_rooms


def generate(cfg: DictConfig) -> None:
    """Generate the datasets of `cfg.draw` in parallel processes, and print what was done."""
    tasks = [functools.partial(_generate, cfg, name) for name in cfg.draw]
    shares = [0.0] * len(tasks)
    title = f"generating {', '.join(cfg.draw)}"
    with tqdm(total=100, desc=title, unit="%", disable=None) as bar:

        def advance(i: int, share: float | None) -> None:
            shares[i] = 1.0 if share is None else share
            bar.update(int(100 * sum(shares) / len(shares)) - bar.n)

        if len(tasks) == 1:  # no process has to start
            messages = [tasks[0](functools.partial(advance, 0))]
        else:
            messages = side_by_side(tasks, len(os.sched_getaffinity(0)), advance)
    print("\n".join(messages))


def generate_missing(cfg: DictConfig) -> None:
    """Generate the mini dataset of a run, if its folder is missing and paths=mini.

    Other datasets of the benchmark (utkface) and other poses (paths.suffix=_cmu) are not generated.
    """
    name, part = cfg.benchmark.dataset, cfg.benchmark.get("mini")
    sizes, folder = cfg.paths.get("generate"), cfg.paths.get(name)
    own = name == cfg.benchmark.name and cfg.paths.suffix.startswith("_mini")
    if sizes is None or part is None or folder is None or not own or Path(folder).exists():
        return
    settings = composed("prepare_mini", [*sizes, f"draw=[{part}]"])
    (settings if part == "faces" else settings[part]).folder = folder
    with contextlib.redirect_stdout(sys.stderr):  # train.py prints the folder of its run
        generate(settings)


def _generate(cfg: DictConfig, name: str, report: Callable[[float], None]) -> str:
    """Generate one dataset and return a message."""

    def progress(items: Any) -> Iterator:
        for i, item in enumerate(items):
            if i % 50 == 0:
                report(i / len(items))
            yield item

    own: Any = cfg if name == "faces" else cfg[name]
    if name == "faces":
        new = write_faces(own.folder, own.images, own.size, own.cap, cfg.seed, progress)
        about = "\n" + describe(read_csv(Path(own.folder) / "imdb_wiki.csv"))
    elif name == "rooms":
        new = write_rooms(own.folder, own.train, own.test, cfg.seed, progress)
        about = f"\ntrain {own.train:,}, test {own.test:,} frames"
    else:
        counts: Any = OmegaConf.to_container(own.counts)
        settings = counts, own.size, cfg.seed, own.poses, progress, own.harder
        new = write_bodies(own.folder, *settings)
        about = ""
    return f"{own.folder}: {'generated' if new else 'already there, nothing to do'}.{about}"
