"""Runs that lie in folders: what there is, and their curves. Nothing here needs PyTorch."""
