"""What comes after the runs: tables, their figures, and the report that shows them."""
