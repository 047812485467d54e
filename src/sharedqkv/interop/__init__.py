"""To and from other forms of a model."""
