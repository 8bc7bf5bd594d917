"""The files of docs/monitoring, loaded as Prometheus and Grafana do: every expression, and the metrics it names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

MONITORING = Path(__file__).resolve().parents[1] / "docs" / "monitoring"
OF_RUNNERS = re.compile(r"foldlog_(fold|runner)_")


def alert_expressions(group: str) -> list[str]:
    """Of the rules of a group; each rule has what Prometheus requires."""
    loaded = yaml.safe_load((MONITORING / "foldlog.rules.yml").read_text(encoding="utf-8"))
    (found,) = [one for one in loaded["groups"] if one["name"] == group]
    assert all(set(rule) <= {"alert", "expr", "for", "annotations"} for rule in found["rules"])
    assert all(rule["alert"].startswith("Foldlog") and rule["annotations"]["summary"] for rule in found["rules"])
    return [rule["expr"] for rule in found["rules"]]


def dashboard_expressions() -> list[str]:
    """Of the panels and of the variables."""
    board = json.loads((MONITORING / "foldlog.dashboard.json").read_text(encoding="utf-8"))
    panels = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    variables = [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    return [*panels, *variables]


def metric_names(expressions: list[str]) -> set[str]:
    return {name for text in expressions for name in re.findall(r"(?:foldlog|process)_\w+", text)}
