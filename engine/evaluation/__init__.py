"""Metrics and predictions of a split."""
