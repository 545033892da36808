"""Make stsb.npz, frozen vectors of the sentences of STS-B-DIR (configs/prepare_stsb.yaml)."""

from pathlib import Path

import numpy as np
from command import command
from omegaconf import DictConfig

from datasets.files import whole
from datasets.stsb import FILES, read_pairs, vectors_of, wordllama


def prepare(cfg: DictConfig) -> Path:
    embed = wordllama() if cfg.vectors == "wordllama" else vectors_of(Path(cfg.vectors))
    arrays = {}
    for split, name in FILES.items():
        first, second, score = read_pairs(Path(cfg.source) / name)
        arrays |= {f"{split}_u": embed(first), f"{split}_v": embed(second)}
        arrays[f"{split}_score"] = score
        print(f"{split}: {len(score):,} pairs")
    path = Path(cfg.root) / "stsb.npz"
    with whole(path) as file:
        np.savez_compressed(file, **arrays)
    return path


@command("prepare_stsb")
def main(cfg: DictConfig) -> None:
    try:
        print(prepare(cfg))
    except (OSError, ValueError, ImportError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
