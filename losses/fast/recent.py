"""What was made of the same numbers a moment ago.

A table or a factorisation is worth keeping while sigma and the prior stay as they are. They are
compared by their numbers, not by identity or version: no way to change a tensor (in place, through
.data or a NumPy view, by loading a state) can leave something old behind. Small tensors are
compared number by number. Of large ones, which take longer to compare than to use, the bits of
every row are added up as integers, which any other number in it changes.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
LARGE = 1 << 14
_kept: deque[tuple[tuple, list[Tensor], object]] = deque(maxlen=8)


def recent(tensors: tuple[Tensor, ...], key: tuple, make: Callable[[], T]) -> T:
    """make(), which depends on nothing but the tensors' numbers (on the CPU) and the key."""
    key = (*key, *((t.shape, t.dtype) for t in tensors))
    seen = [part for t in tensors for part in _numbers(t)]
    for entry in tuple(_kept):
        if entry[0] == key and all(map(torch.equal, entry[1], seen)):
            return entry[2]  # pyright: ignore[reportReturnType]
    with torch.inference_mode(False), torch.no_grad():
        copies, made = [part.clone() for part in seen], make()
    _kept.appendleft((key, copies, made))
    return made


def _numbers(t: Tensor) -> list[Tensor]:
    rows = t.detach().reshape(-1, t.shape[-1])
    if t.numel() < LARGE or rows.shape[1] * t.itemsize % 8:
        return [rows]
    return [rows.view(torch.int64).sum(-1)]
