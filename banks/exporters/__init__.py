"""Exporters of banks into files of other formats; each appears when it is complete."""
