"""What both sides must agree on: geometry, queries, pixels, tokens, bundles, metrics."""
