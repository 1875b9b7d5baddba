"""The near-tie gate: two selects over millions of rows, every difference judged."""
