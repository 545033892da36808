"""Code for single benchmarks: data preparation, figures, and their own tasks and metrics."""
