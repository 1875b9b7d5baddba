"""Committed scripts that made the data of the package."""
