r"""Run the released code next to ours on the same inputs and print one line for each quantity.

    python scripts/compare_released.py balanced_mse=<clone> dir=<clone> spin=<clone> \
        mmhuman3d=<clone>

The user clones the repositories that configs/compare_released.yaml names. A missing clone or a
missing package of its code is skipped with a message. The exit code is 1 if a line is DIFFERENT
or FAILED.
"""

import subprocess
import sys
import time

from command import command
from omegaconf import DictConfig


def compare_all(cfg: DictConfig) -> None:
    from hydra.core.global_hydra import GlobalHydra
    from rich.console import Console
    from rich.markdown import Markdown

    from engine import ROOT
    from engine.runs import records
    from scripts.released.compare import compare, markdown, publish

    GlobalHydra.instance().clear()  # the comparisons compose configs
    start = time.perf_counter()
    clones = {key: cfg[key] for key in cfg.repositories}
    report = compare(cfg.repositories, clones, cfg.only, cfg.nyud2)
    commits = {cfg.repositories[k].url: commit(v) for k, v in clones.items() if v}
    report["meta"] = {**records.meta(time.perf_counter() - start), "clones": commits}
    Console(width=None if sys.stdout.isatty() else 200).print(Markdown(markdown(report)))
    wrong = ("DIFFERENT", "FAILED")
    unexplained = sum(line["verdict"].startswith(wrong) for line in report["lines"])
    print(f"{len(report['lines'])} quantities, {unexplained} of them not explained")
    if cfg.publish:
        publish(report, ROOT)
    if unexplained:
        raise SystemExit(1)


def commit(clone: str) -> str | None:
    """Return the commit of a clone, or None if the folder is not a clone of git."""
    command = ["git", "--git-dir", f"{clone}/.git", "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None


main = command(__name__, "compare_released", compare_all)
