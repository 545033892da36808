"""Metrics: error x grouping x average, over all samples, shots, bins and tails."""

from metrics.errors import mean_distance, pa_mpjpe
from metrics.report import (
    AgeMetrics,
    DepthMetrics,
    MeshMetrics,
    age_report,
    depth_report,
    mesh_report,
)
from metrics.similarity import SimilarityMetrics, similarity_report

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
