"""Search at random for settings in which the fast losses differ from their definition.

python scripts/search_losses.py settings=3500 seeds=[0,1,2]
"""

import json
from collections import Counter
from pathlib import Path

from command import command
from omegaconf import DictConfig

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.runs import provenance
from engine.speed.search import TOLERANCE, search


@command("search_losses")
def main(cfg: DictConfig) -> None:
    runs = [search(cfg.settings, seed, progress=True) for seed in cfg.seeds]
    worst = max(runs, key=lambda run: run["worst"])
    names = ("settings", "tables", "far", "cancelled")
    found = {name: sum(run[name] for run in runs) for name in names}
    pairs = sum((Counter(run["pairs"]) for run in runs), Counter())
    report = {**found, "worst": worst["worst"], "where": worst["where"], "pairs": dict(pairs)}
    for name, count in sorted(pairs.items()):
        print(f"{count:6d}  {name}")
    print(
        f"{found['settings']} settings. {found['tables']} read a table, {found['far']} have far "
        f"samples, in {found['cancelled']} gradients cancel.\n"
        f"The largest difference is {worst['worst']:.2e} ({worst['where']})."
    )
    meta = {**provenance.meta(), "tolerance": TOLERANCE, "seeds": list(cfg.seeds)}
    for folder in (Path(cfg.folder), RESULTS) if cfg.publish else (Path(cfg.folder),):
        with atomic_write(folder / "search_losses.json") as file:
            file.write(json.dumps({**report, "meta": meta}, indent=1).encode() + b"\n")
    if not worst["worst"] <= TOLERANCE:
        raise SystemExit(f"A fast loss differs by more than {TOLERANCE} of the largest gradient.")


if __name__ == "__main__":
    main()
