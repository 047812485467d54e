"""Fine-tuning tasks: GLUE, SQuAD and out-of-domain sets, and their official metrics."""
