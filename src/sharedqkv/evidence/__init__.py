"""Statistics and reports: what a comparison of fine-tuned models may claim."""
