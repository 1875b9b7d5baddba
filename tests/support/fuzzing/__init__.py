"""Fuzzing of whatever reads a file: mutations, readers with their seeds, and the loop."""
