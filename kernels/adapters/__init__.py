"""Selects of other libraries as paths: imported when they run, never before."""
