"""Train one row of a table, including its stage 1.

python scripts/train.py experiment=imdb_wiki/bmc preset=laptop paths=mini
python scripts/train.py --multirun experiment=imdb_wiki/bmc,imdb_wiki/gai seed=0,1,2
"""

from command import command
from omegaconf import DictConfig


def train(cfg: DictConfig) -> float | None:
    """Return the validation score, if any, for sweepers that minimise it."""
    from engine.runs.folder import brief, is_main_process
    from engine.runs.run import run

    done = run(cfg)
    if is_main_process():
        print(done["folder"])
        for key, value in brief(done["metrics"], cfg.log.show):
            print(f"  {key:<17} {value}")
    return done["metrics"].get(f"val/{cfg.select.metric}")


main = command(__name__, "train", train)
