"""Random search for a setting in which the fast losses differ from their definition.

python scripts/search_losses.py settings=3500 seeds=[0,1,2]
"""

from collections import Counter
from pathlib import Path

from command import command
from omegaconf import DictConfig


def search_losses(cfg: DictConfig) -> None:
    from engine import RESULTS
    from engine.runs import identity, provenance, records
    from engine.speed.search import TOLERANCE, search

    folder, runs = Path(cfg.folder), []
    key = {"code": identity.code(("losses", "engine/speed"), []), "settings": cfg.settings}
    for seed in cfg.seeds:  # an interrupted search resumes at the next seed
        path = folder / "search_losses" / f"{seed}.json"
        found = records.read(path, f"Remove {path}.") if path.is_file() else {}
        if any(found.get(name) != value for name, value in key.items()):
            found = {**search(cfg.settings, seed, progress=True), **key}
            records.write(path, found)
        runs.append(found)
    worst = max(runs, key=lambda run: run["worst"])
    sums = ("settings", "corners", "tables", "far", "cancelled")
    report = {name: sum(run[name] for run in runs) for name in sums}
    pairs = sum((Counter(run["pairs"]) for run in runs), Counter())
    for name, count in sorted(pairs.items()):
        print(f"{count:6d}  {name}")
    print(
        "{settings} settings, {corners} of them corners. {tables} read a table, {far} have far "
        "samples, in {cancelled} gradients cancel.".format_map(report)
    )
    print(f"The largest difference is {worst['worst']:.2e} ({worst['where']}).")
    report |= {"worst": worst["worst"], "where": worst["where"], "pairs": dict(pairs)}
    report["meta"] = {**provenance.meta(), "tolerance": TOLERANCE, "seeds": list(cfg.seeds)}
    for target in (folder, RESULTS) if cfg.publish else (folder,):
        records.write(target / "search_losses.json", report)
    if not worst["worst"] <= TOLERANCE:
        raise SystemExit(f"A fast loss differs by more than {TOLERANCE} of the largest gradient.")


main = command("search_losses", search_losses)

if __name__ == "__main__":
    main()
