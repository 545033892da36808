"""Compare regularisers, losses and post-hoc balancing with equal budgets: configs/leaderboard.yaml.

python scripts/leaderboard.py benchmarks=[stsb] settings=3
"""

from command import command
from reproduce import added

main = command(__name__, "leaderboard", "engine.tables.leaderboard.main", added)
