"""Makes checkpoints and exports them as bundles. The only room that knows torch."""
