"""The data of a chart, wherever it stands."""

from typing import Any


def values(chart: Any) -> list[dict[str, Any]]:
    """All rows of data in a chart, wherever they stand."""
    found: list[dict[str, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for rows in node.get("datasets", {}).values():
                found.extend(rows)
            if isinstance(node.get("values"), list) and "data" not in node:
                found.extend(row for row in node["values"] if isinstance(row, dict))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(chart.to_dict())
    return found
