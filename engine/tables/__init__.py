"""Tables of finished runs, their figures, and the report."""
