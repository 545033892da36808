"""Time what this project makes fast against the obvious alternative: see configs/speed.yaml."""

import json
import os
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # silences the profiler

from command import command
from omegaconf import DictConfig
from rich.console import Console
from rich.markdown import Markdown

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.runs import provenance
from engine.speed import losses, training
from engine.speed.timing import Compare, markdown
from engine.tables import pages

GROUPS = {
    "losses": losses.losses,
    "synthetic": losses.synthetic,
    "loader": training.loader,
    "features": training.features,
    "depth": training.depth,
    "bodies": training.bodies,
}


@command("speed")
def main(cfg: DictConfig) -> None:
    console = Console(width=max(Console().width, 130))
    compare = Compare(cfg.rounds, cfg.budget, cfg.threads)
    files = [Path(cfg.folder) / "speed.json", *([RESULTS / "speed.json"] if cfg.publish else [])]
    for group in cfg.only:
        rows = [asdict(row) for row in GROUPS[group](cfg[group], compare)]
        found = {"rows": rows, "meta": {**provenance.meta(), "threads": cfg.threads}}
        console.print(Markdown(markdown({group: found})))
        for path in files:  # other groups stay as they are
            report = json.loads(path.read_text()) if path.is_file() else {}
            with atomic_write(path) as file:
                file.write(json.dumps({**report, group: found}, indent=1).encode() + b"\n")
    if cfg.publish:
        text = markdown(json.loads(files[-1].read_text()))
        pages.insert_everywhere(RESULTS, "speed", text)


if __name__ == "__main__":
    main()
