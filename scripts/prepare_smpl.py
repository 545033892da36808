"""Convert SMPL's official pickles to npz; nothing in them is executed (models/smpl_pickle.py)."""

from pathlib import Path

from command import command
from omegaconf import DictConfig


def convert(cfg: DictConfig) -> None:
    import numpy as np

    from datasets.io.files import atomic_write
    from models.smpl_pickle import read_pickle

    for gender, source in cfg.files.items():
        if source is None:
            continue
        arrays = read_pickle(Path(source))
        arrays.pop("vertex_ids")
        target = Path(cfg.folder) / f"SMPL_{str(gender).upper()}.npz"
        with atomic_write(target) as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
        print(f"{target}: {len(arrays['v_template'])} vertices, from {source}")


main = command("prepare_smpl", convert)

if __name__ == "__main__":
    main()
