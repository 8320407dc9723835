"""Losses over nodes on the hyperboloid: shared terms, and a file for each system of them."""
