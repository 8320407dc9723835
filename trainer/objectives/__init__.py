"""Losses over the points of a batch: shared terms, and a file for each system of them."""
