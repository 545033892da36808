"""Report how imbalanced labels are, which prior fits them, and what balancing will change.

python scripts/diagnose.py labels.csv
python scripts/diagnose.py people.csv column=age residuals=error
"""

import os
from pathlib import Path

from command import command
from omegaconf import DictConfig


def report(cfg: DictConfig) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads take CPU time and save none
    from datasets.io.files import atomic_write
    from losses import diagnose
    from metrics.columns import numbers

    if cfg.labels is None:
        raise SystemExit("Give a file of labels: python scripts/diagnose.py labels.csv")
    path = Path(cfg.labels)
    labels = numbers(path, cfg.column)
    residuals = None if cfg.residuals is None else numbers(path, cfg.residuals)
    try:
        found = diagnose(labels, residuals)
    except ValueError as error:
        raise SystemExit(f"{path}: {error}") from None
    print(found)
    if cfg.figure is not None:
        figure = Path(cfg.figure)
        with atomic_write(figure) as file:
            found.plot(file, figure.suffix.lstrip(".") or "png")
        print(f"Figure: {figure}")


def positional(arguments: list[str]) -> list[str]:
    """Replace a bare file name by labels=<file>."""
    return [a if "=" in a or a.startswith("-") else f"labels='{a}'" for a in arguments]


main = command(__name__, "diagnose", report, positional)
