"""One line of the comparison: a quantity, how far ours is from theirs, and what that means.

    equal        the largest difference is within what rounding explains
    deviation    it is larger, docs/protocol.md lists it under a name, and it is within its bound
    DIFFERENT    neither
    FAILED       the comparison itself did not run

Differences are of the largest entry: relative to the largest of theirs, or absolute in a unit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
COLUMNS = ("quantity", "largest difference", "rounding explains", "verdict")


@dataclass
class Line:
    """What was found about a quantity.

    Arguments:
        repository, quantity: whose, and what.
        difference: the largest one; infinite where shapes differ or a file is refused.
        tolerance: what rounding explains.
        unit: of both; "relative" to the largest entry of theirs.
        deviation: the name of an entry of docs/protocol.md that explains a larger difference.
        bound: what that entry explains at most.
        note: what went wrong, if the comparison did not run.
    """

    repository: str
    quantity: str
    difference: float
    tolerance: float
    unit: str = "relative"
    deviation: str | None = None
    bound: float = np.inf
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.note:
            return f"FAILED: {self.note}"
        if self.difference <= self.tolerance:
            return "equal"
        if self.deviation is None:
            return "DIFFERENT"
        if self.difference > self.bound:
            return f"DIFFERENT: {self.deviation} explains at most {self.bound:.3g}"
        reason = reasons().get(self.deviation)
        if reason is None:
            return f"DIFFERENT: docs/protocol.md does not list {self.deviation!r}"
        return f"deviation: {self.deviation}"

    @property
    def explained(self) -> bool:
        return self.verdict == "equal" or self.verdict.startswith("deviation")

    def cells(self) -> tuple[str, str, str, str]:
        unit = "" if self.unit == "relative" else f" {self.unit}"
        size, limit = (f"{x:.2g}{unit if x else ''}" for x in (self.difference, self.tolerance))
        return self.quantity, size, limit, self.verdict

    def plain(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        values = {k: None if v == np.inf else v for k, v in asdict(self).items()}
        return {**values, "verdict": self.verdict}


def reasons(protocol: Path = PROTOCOL) -> dict[str, str]:
    """{name: text} of the entries `- *name*: text` of docs/protocol.md, the listed deviations."""
    items = re.split(r"\n(?=- |\n|#|\|)", protocol.read_text())
    found = (
        re.match(r"- \*([^*]+)\*\s*(?:\([^)]*\))?:?\s*(.*)", item, re.DOTALL) for item in items
    )
    return {match[1]: " ".join(match[2].split()) for match in found if match}


class Lines:
    """The lines of one repository."""

    def __init__(self, repository: str):
        self.repository = repository
        self.found: list[Line] = []

    def add(
        self,
        quantity: str,
        ours: Any,
        theirs: Any,
        tolerance: float,
        unit: str = "relative",
        **more,
    ) -> None:
        """Compare two arrays, numbers, or mappings or sequences of them."""
        size = largest(ours, theirs, unit == "relative")
        self.found.append(Line(self.repository, quantity, size, tolerance, unit, **more))

    def same(
        self, quantity: str, ours: Sequence | np.ndarray, theirs: Sequence | np.ndarray
    ) -> None:
        """Compare two lists entry by entry: how many differ."""
        a, b = np.asarray(ours), np.asarray(theirs)
        wrong = float((a != b).sum()) if a.shape == b.shape else np.inf
        unit = f"of {b.size} differ"
        self.found.append(Line(self.repository, quantity, wrong, 0.0, unit))


def largest(ours: Any, theirs: Any, relative: bool) -> float:
    """max |ours - theirs|, over max |theirs| if relative; infinite where the shapes differ.

    Of lists and mappings, the largest over their entries, each by its own scale.
    """
    if isinstance(theirs, Mapping):
        keys = sorted(theirs)
        ours, theirs = [ours[key] for key in keys], [theirs[key] for key in keys]
    if isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return np.inf
        return max(largest(a, b, relative) for a, b in zip(ours, theirs, strict=True))
    a, b = numbers(ours), numbers(theirs)
    if a.shape != b.shape:
        return np.inf
    both = np.isnan(a) & np.isnan(b)
    if not np.isfinite(np.where(both, 0, a - b)).all():
        return np.inf
    if both.all():
        return 0.0
    size, scale = np.abs(a - b)[~both].max(), np.abs(b)[~both].max()
    return float(size / scale) if relative and size > 0 else float(size)


def rms(ours: Any, theirs: Any) -> float:
    a, b = numbers(ours), numbers(theirs)
    return float(np.sqrt(np.square(a - b).mean())) if a.shape == b.shape else np.inf


def numbers(value: Any) -> np.ndarray:
    """The numbers of an array or tensor, in one row."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    return np.asarray(value, np.float64).ravel()
