"""How a script starts: its config, checked once, and its errors."""
