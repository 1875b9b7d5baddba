"""Rows pasted from a bug report, classified with no bank."""

from .explain import ExplainResult, explain_rows

__all__ = ["ExplainResult", "explain_rows"]
