"""Recording banks from running torch models: gate specs, hooks, shards of ranks, their merge."""
