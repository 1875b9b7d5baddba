"""Measurements: arrays in, frozen records out. No torch, files, clock or randomness."""
