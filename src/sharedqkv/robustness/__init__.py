"""Robustness: noise on text and on embeddings, and the grids that measure what it costs."""
