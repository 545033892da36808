"""Make imdb_wiki.csv and its balanced split from imdb.mat and wiki.mat (see prepare_age.py)."""

import sys
from pathlib import Path

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import hydra  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from scripts.prepare_age import prepare  # noqa: E402


@hydra.main(version_base="1.3", config_path="../configs", config_name="prepare_imdb_wiki")
def main(cfg: DictConfig) -> None:
    prepare(cfg)


if __name__ == "__main__":
    main()
