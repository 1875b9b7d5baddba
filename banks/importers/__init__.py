"""Importers of foreign formats into bank directories."""
