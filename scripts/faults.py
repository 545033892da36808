"""Break things on purpose and see what happens: a table fault -> what happened -> lost or not.

python scripts/faults.py                    everything (make faults)
python scripts/faults.py kind=[settings,hostile] quick=true
"""

import sys
from pathlib import Path

from command import command
from omegaconf import DictConfig

from engine import records


@command("faults")
def main(cfg: DictConfig) -> None:
    from tests.faults.campaign import replay

    found = replay(Path(cfg.folder), list(cfg.kind), cfg.quick, cfg.moments, print)
    records.write(Path(cfg.folder) / "faults.json", {"faults": found})
    bad = [one["fault"] for one in found if not one["good"]]
    print(f"{len(found)} faults, {len(found) - len(bad)} as they should be.")
    if bad:
        raise ValueError(f"not as it should be: {', '.join(bad)}")


if __name__ == "__main__":
    sys.exit(main())
