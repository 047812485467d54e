"""Text to rows: preparing corpora in shards with a manifest, and reading them."""
