"""Metrics: error x grouping x average, over all samples, shots, bins and tails.

The functions need torch alone. The classes that add up over batches and ranks (AgeMetrics, ...) are
torchmetrics, which is imported when the first of them is asked for.
"""

from typing import TYPE_CHECKING, Any

from .errors import mean_distance, pa_mpjpe
from .report import age_report, depth_report, mesh_report
from .similarity import similarity_report

if TYPE_CHECKING:
    from .state import AgeMetrics, DepthMetrics, MeshMetrics, SimilarityMetrics

__all__ = [
    "AgeMetrics",
    "DepthMetrics",
    "MeshMetrics",
    "SimilarityMetrics",
    "age_report",
    "depth_report",
    "mean_distance",
    "mesh_report",
    "pa_mpjpe",
    "similarity_report",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import state
    except ModuleNotFoundError as error:
        message = f"{name} needs torchmetrics: pip install torchmetrics"
        raise ModuleNotFoundError(message) from error
    return getattr(state, name)
