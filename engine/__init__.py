"""The one loop: what every benchmark shares, from a config to a run folder."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # of the checkout
CONFIGS = ROOT / "configs"
RESULTS = ROOT / "results"  # what publish=true writes, and what is committed
