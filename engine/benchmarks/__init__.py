"""What only one benchmark needs: its figures, and where it differs, its task and metrics."""
