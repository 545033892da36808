"""Break things on purpose and see what happens: a table fault -> what happened -> lost or not.

python scripts/faults.py                    everything (make faults)
python scripts/faults.py kind=[settings,hostile] quick=true
python scripts/faults.py kind=[process] script=table
"""

import sys
import time
from pathlib import Path

from command import command
from omegaconf import DictConfig


@command("faults")
def main(cfg: DictConfig) -> None:
    from engine import RESULTS
    from tests.faults import summary
    from tests.faults.campaign import catalogue, replay
    from tests.faults.fault import Fault

    def wanted(fault: Fault) -> bool:
        named = cfg.script is None or fault.name.startswith(f"{cfg.script}.py")
        return fault.kind in cfg.kind and named and (fault.quick or not cfg.quick)

    start = time.monotonic()
    found = replay(Path(cfg.folder), cfg.moments, wanted, cfg.resume, cfg.jobs, print)
    took = time.monotonic() - start
    for kind, count, good, seconds in summary.kinds(found):
        print(f"{kind:9} {count:4} faults, {good:4} as they should be, {seconds:6} s")
    bad = [one["fault"] for one in found if not one["good"]]
    count = f"{len(found)} faults, {len(found) - len(bad)} as they should be"
    print(f"{count}, {took / 60:.1f} minutes with {cfg.jobs} at a time.")
    if cfg.publish:
        summary.publish(RESULTS, found, len(catalogue(cfg.moments)), cfg.jobs)
    if bad:
        raise ValueError(f"not as it should be: {', '.join(bad)}")


if __name__ == "__main__":
    sys.exit(main())
