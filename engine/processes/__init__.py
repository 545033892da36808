"""Processes that run in parallel and end together."""
