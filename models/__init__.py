"""Models: a backbone that computes features, and a head that maps them to label numbers."""
