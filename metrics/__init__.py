"""Metrics: error x grouping x average, over all samples, shots, bins and tails.

The functions need only torch (`pa_mpjpe` also needs roma). The classes, which accumulate over
batches and ranks, need torchmetrics; they are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .balanced import balanced_report, balanced_scorer
from .errors import mean_distance, pa_mpjpe
from .report import age_report, depth_report, mesh_report
from .similarity import similarity_report

if TYPE_CHECKING:
    from .classes import AgeMetrics, BalancedMetrics, DepthMetrics, MeshMetrics, SimilarityMetrics
    from .predictions import evaluate_csv

__all__ = [
    "AgeMetrics",
    "BalancedMetrics",
    "DepthMetrics",
    "MeshMetrics",
    "SimilarityMetrics",
    "age_report",
    "balanced_report",
    "balanced_scorer",
    "depth_report",
    "evaluate_csv",
    "mean_distance",
    "mesh_report",
    "pa_mpjpe",
    "similarity_report",
]

if not TYPE_CHECKING:  # a type checker reports unknown names

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = ".predictions" if name == "evaluate_csv" else ".classes"
        try:
            return getattr(import_module(module, __name__), name)
        except ModuleNotFoundError as error:
            if error.name != "torchmetrics":
                raise
            message = f"{name} needs torchmetrics: pip install torchmetrics"
            raise ModuleNotFoundError(message) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
