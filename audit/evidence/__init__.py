"""The evidence directory: written whole, read back, checked, signed, compared."""
