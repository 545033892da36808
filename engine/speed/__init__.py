"""Speed of the code against the obvious alternatives: see configs/speed.yaml."""
