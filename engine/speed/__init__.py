"""How fast the code is, beside the textbook's way."""
