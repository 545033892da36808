"""Balanced splits: a long-tailed training set, and validation and test sets as flat as possible.

For every integer age 0..120 with c images, n = min(c // 3, cap) go to val, n to test, the rest to
train. Ages above 120 go to train. N is the number of images.
"""

import hashlib
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from datasets.io import images
from datasets.io.files import Progress

LAST_AGE = 120


def balanced_split(
    ages: np.ndarray, cap: int, seed: int, together: Sequence[Sequence[int]] = ()
) -> np.ndarray:
    """(N,) ages -> (N,) of "train", "val", "test".

    together: groups of images that must share a split, such as identical ones; all of them go to
    train. An age keeps its n if enough of its images are in no group.
    """
    generator = random.Random(seed)
    years = np.floor(np.asarray(ages)).astype(int)
    grouped = {index for group in together for index in group}
    split = np.full(len(years), "train", dtype="<U5")
    for age in range(LAST_AGE + 1):
        members = np.flatnonzero(years == age).tolist()
        generator.shuffle(members)
        free = [index for index in members if index not in grouped]
        n = min(len(members) // 3, cap, len(free) // 2)
        split[free[:n]] = "val"
        split[free[n : 2 * n]] = "test"
    return split


def identical_images(files: Sequence[Path], progress: Progress = iter) -> list[list[int]]:
    """Return groups of two or more indices of files with the same bytes, in order of appearance.

    Only files of equal length are hashed.
    """
    by_length = defaultdict(list)
    for index, file in enumerate(progress(files)):
        try:
            by_length[file.stat().st_size].append(index)
        except FileNotFoundError:
            images.read_bytes(file)  # raises a clear error
    by_hash = defaultdict(list)
    for length, indices in by_length.items():
        for index in indices if len(indices) > 1 else ():
            digest = hashlib.blake2b(images.read_bytes(files[index])).digest()
            by_hash[length, digest].append(index)
    return sorted(group for group in by_hash.values() if len(group) > 1)
