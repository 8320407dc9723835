"""Losses over nodes on the hyperboloid: shared terms, and one file per system that composes them."""
