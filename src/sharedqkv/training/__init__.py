"""Pre-training: recipes, a thin Trainer, committed checkpoints, run folders."""
