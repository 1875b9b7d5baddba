"""A package, so that type checkers tell its conftest from the suite's."""
