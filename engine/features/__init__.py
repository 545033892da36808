"""Cached features of a frozen backbone."""
