"""Make imdb_wiki.csv and its balanced split from imdb.mat and wiki.mat (see prepare_age.py)."""

from command import command
from omegaconf import DictConfig

from engine.benchmarks import prepare


@command("prepare_imdb_wiki")
def main(cfg: DictConfig) -> None:
    prepare.ages(cfg)


if __name__ == "__main__":
    main()
