"""A run folder: find it or run it, its identity, checkpoints and records."""
