"""The one loop: what every benchmark shares, from a config to a run folder."""
