"""What was recorded: router inputs, ranks, provenance."""
