"""Run one row of a table, stage 1 included.

python scripts/train.py experiment=imdb_wiki/bmc preset=laptop paths=mini
python scripts/train.py --multirun experiment=imdb_wiki/bmc,imdb_wiki/gai seed=0,1,2
"""

import sys
from pathlib import Path

# The scripts folder on the path would let scripts/synthetic.py hide the package synthetic/.
sys.path[0] = str(Path(__file__).resolve().parents[1])

import hydra  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from engine.folder import is_main_process  # noqa: E402
from engine.help import help_if_wanted  # noqa: E402
from engine.run import run  # noqa: E402


@hydra.main(version_base="1.3", config_path="../configs", config_name="train")
def main(cfg: DictConfig) -> float | None:
    """The validation score, if there is one, so that a sweeper may minimise it."""
    done = run(cfg)
    if is_main_process():
        print(done["folder"])
        for key in cfg.log.show:
            print(f"  test/{key:<12} {done['metrics'][f'test/{key}']:.3f}")
    return done["metrics"].get(f"val/{cfg.select.metric}")


if __name__ == "__main__":
    help_if_wanted(__doc__ or "", "train")
    main()
