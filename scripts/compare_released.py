r"""Run the released code beside ours on the same inputs: one line for each quantity.

    python scripts/compare_released.py balanced_mse=<clone> dir=<clone> spin=<clone> \
        mmhuman3d=<clone>

The clones are the user's, of the repositories that configs/compare_released.yaml names. What is
missing (a clone, a package that its code needs) is skipped by name. The exit code is 1 if a line
is DIFFERENT or FAILED.
"""

import sys
import time

import torch
from command import command
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from rich.console import Console

from engine import ROOT
from scripts.released import report
from scripts.released.compare import compare


@command("compare_released")
def main(cfg: DictConfig) -> None:
    GlobalHydra.instance().clear()  # the parts compose configs of their own
    torch.manual_seed(0)
    start = time.perf_counter()
    found, skipped = compare(cfg.repositories, cfg.only, {"nyud2": cfg.nyud2})
    Console(width=200 if not sys.stdout.isatty() else None).print(report.table(found))
    for line in skipped:
        print(f"skipped: {line}")
    wrong = [line for line in found if not line.explained]
    print(f"{len(found)} quantities, {len(wrong)} of them not explained")
    if cfg.publish:
        seconds = time.perf_counter() - start
        report.publish(report.content(found, skipped, cfg.repositories, seconds), ROOT)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
