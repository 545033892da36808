"""Metrics: error x grouping x average, over all samples, shots, bins and tails.

Names are imported on first use. The functions need only torch (`pa_mpjpe` also needs roma); the
classes, which accumulate over batches and ranks, need torchmetrics.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .binned import AgeMetrics, DepthMetrics  # noqa: F401
    from .errors import mean_distance, pa_mpjpe  # noqa: F401
    from .report import age_report, depth_report, mesh_report  # noqa: F401
    from .similarity import similarity_report  # noqa: F401
    from .stored import MeshMetrics, SimilarityMetrics  # noqa: F401

_MODULES = {
    "AgeMetrics": "binned",
    "DepthMetrics": "binned",
    "MeshMetrics": "stored",
    "SimilarityMetrics": "stored",
    "age_report": "report",
    "depth_report": "report",
    "mean_distance": "errors",
    "mesh_report": "report",
    "pa_mpjpe": "errors",
    "similarity_report": "similarity",
}
__all__ = list(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torchmetrics":
            raise
        message = f"{name} needs torchmetrics: pip install torchmetrics"
        raise ModuleNotFoundError(message) from error
