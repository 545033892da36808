"""Random search for a setting in which the fast losses differ from their definition.

python scripts/search_losses.py settings=3500 seeds=[0,1,2]
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from command import command
from omegaconf import DictConfig

from datasets.io.files import atomic_write
from engine import RESULTS
from engine.runs import identity, provenance
from engine.speed.search import TOLERANCE, search


def found_before(settings: int, seed: int, folder: Path) -> dict[str, Any]:
    """Search with one seed, or read its result: an interrupted search resumes at the next seed."""
    key = {"code": identity.code(("losses", "engine/speed"), []), "settings": settings}
    path = folder / f"{seed}.json"
    if path.is_file():
        part = json.loads(path.read_text())
        if {name: part.get(name) for name in key} == key:
            return part
    found = search(settings, seed, progress=True)
    with atomic_write(path) as file:
        file.write(json.dumps({**found, **key}).encode())
    return found


@command("search_losses")
def main(cfg: DictConfig) -> None:
    folder = Path(cfg.folder)
    runs = [found_before(cfg.settings, seed, folder / "search_losses") for seed in cfg.seeds]
    worst = max(runs, key=lambda run: run["worst"])
    found = {
        key: sum(run[key] for run in runs) for key in ("settings", "tables", "far", "cancelled")
    }
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
    for target in (folder, RESULTS) if cfg.publish else (folder,):
        with atomic_write(target / "search_losses.json") as file:
            file.write(json.dumps({**report, "meta": meta}, indent=1).encode() + b"\n")
    if not worst["worst"] <= TOLERANCE:
        raise SystemExit(f"A fast loss differs by more than {TOLERANCE} of the largest gradient.")


if __name__ == "__main__":
    main()
