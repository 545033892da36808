"""Numbers that the public implementations gave, with the inputs that they were given."""

from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as archive:
        return dict(archive)
