"""Time what this project makes fast against the obvious alternative: see configs/speed.yaml."""

import os
from pathlib import Path

from command import command
from omegaconf import DictConfig


def speed(cfg: DictConfig) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # silences the profiler
    from rich.console import Console
    from rich.markdown import Markdown

    from engine import RESULTS
    from engine.runs import records
    from engine.speed import timing
    from engine.tables import pages

    console = Console(width=max(Console().width, 130))
    compare = timing.Compare(cfg.rounds, cfg.budget, cfg.threads)
    files = [Path(cfg.folder) / "speed.json", *([RESULTS / "speed.json"] if cfg.publish else [])]
    for group in cfg.only:
        rows = list(getattr(timing, group)(cfg[group], compare))
        found = {"rows": rows, "meta": {**records.meta(), "threads": cfg.threads}}
        console.print(Markdown(timing.report({group: found})))
        for path in files:  # other groups stay as they are
            content = records.read(path, f"Remove {path}.") if path.is_file() else {}
            records.write(path, {**content, group: found})
    if cfg.publish:
        content = records.read(files[-1], "git checkout results restores it.")
        pages.insert_everywhere(RESULTS, "speed", timing.report(content))


main = command(__name__, "speed", speed)
