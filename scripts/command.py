"""How every script starts: its own checkout comes first on the path, then Hydra reads its config.

A script finds this file because Python puts the script's folder on the path.
"""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

ROOT = str(Path(__file__).resolve().parents[1])
if sys.path[0] != ROOT:
    sys.path.insert(0, ROOT)  # before any other checkout that may be installed


def command(config: str) -> Callable[[Callable[[DictConfig], Any]], Callable[..., Any]]:
    """A decorator: main() reads configs/<config>.yaml and the command line, main(cfg) takes cfg."""

    def decorate(main: Callable[[DictConfig], Any]) -> Callable[..., Any]:
        from engine.help import help_if_wanted

        path = Path(ROOT, "configs", config)
        start = hydra.main(version_base="1.3", config_path=str(path.parent), config_name=path.name)

        @wraps(main)
        def run(cfg: DictConfig | None = None) -> Any:
            if cfg is None:
                help_if_wanted(sys.modules[main.__module__].__doc__ or "", config)
            return start(main)(cfg)

        return run

    return decorate
