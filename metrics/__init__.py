"""Metrics: error x grouping x average, over all samples, shots, bins and tails."""

from metrics.errors import mean_distance, pa_mpjpe

__all__ = ["mean_distance", "pa_mpjpe"]
