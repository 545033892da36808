"""Imbalanced human mesh recovery: task, pose labels, metrics and figures."""
