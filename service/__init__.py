"""Serves a bundle: embeddings, hyperbolic search, zero-shot classification. Never imports torch."""
