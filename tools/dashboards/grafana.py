"""The form that Grafana reads: where panels stand, how they look, what they link to."""

from collections.abc import Iterator, Sequence
from typing import Any

from tools.dashboards.panels import COLOURS, ERROR_STEPS, OF_MODEL, SHARE_STEPS, Dashboard, Panel, Query, Row
from tools.make_links import links_of

RUNBOOKS = f"{links_of().docs}/runbooks"
SCHEMA_VERSION = 39
"""Of Grafana 11; later ones read it and bring it up to date by themselves."""
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def document_of(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    return {
        "uid": f"understudy-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["understudy"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": dashboard.span, "to": "now"},
        "timezone": "utc",
        "templating": {"list": list(_variables(dashboard))},
        "annotations": {"list": _annotations(dashboard)},
        "links": [
            {
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "tags": ["understudy"],
                "targetBlank": False,
                "title": "",
                "type": "dashboards",
            }
        ],
        "panels": list(_placed(dashboard.parts)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "prometheus"},
        "hide": 0,
    }
    if dashboard.has_model:
        yield _variable("model", "Model", "label_values(policy_generation, model)", hidden=False)
    yield {
        **_variable("proxies", "Proxies", "label_values(policy_generation, instance)", hidden=True),
        "includeAll": True,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _variable(name: str, label: str, query: str, *, hidden: bool) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "hide": 2 if hidden else 0,
    }


def _annotations(dashboard: Dashboard) -> list[dict[str, Any]]:
    where = OF_MODEL if dashboard.has_model else ""
    named = "" if dashboard.has_model else "{{model}} "
    rollbacks = f"sum by (model, trigger, reason) (increase(rollbacks_total{{{where}}}[1m])) > 0"
    transitions = (
        f'sum by (model, to, reason) (increase(rollout_transitions_total{{{where},to!="FAILED"}}[1m])) > 0'.replace(
            "{,", "{"
        )
    )
    return [
        _annotation("Rollouts", transitions, COLOURS["champion"], f"{named}{{{{to}}}}: {{{{reason}}}}"),
        _annotation(
            "Rollbacks", rollbacks, COLOURS["challenger"], f"{named}rolled back ({{{{trigger}}}}): {{{{reason}}}}"
        ),
    ]


def _annotation(name: str, expr: str, colour: str, title: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "60s",
        "titleFormat": title,
        "textFormat": "",
        "tagKeys": "model,to,trigger,reason",
        "useValueForTime": False,
    }


def _placed(parts: Sequence[Panel | Row]) -> Iterator[dict[str, Any]]:
    """Yield the panels from left to right and from top to bottom."""
    x = y = height = 0
    for number, part in enumerate(parts, start=1):
        wide = COLUMNS if isinstance(part, Row) else part.width
        if isinstance(part, Row) or x + wide > COLUMNS:
            x, y, height = 0, y + height, 0
        tall = 1 if isinstance(part, Row) else part.height
        place = {"x": x, "y": y, "w": wide, "h": tall}
        if isinstance(part, Row):
            yield {"id": number, "type": "row", "title": part.title, "collapsed": False, "panels": [], "gridPos": place}
        else:
            yield _panel(number, part, place)
        x, height = x + wide, max(height, tall)
        if isinstance(part, Row):
            x, y, height = 0, y + 1, 0


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    document = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [_target(letter, query, panel) for letter, query in zip("ABCDEFGH", panel.queries, strict=False)],
        "links": [
            {"title": f"Runbook: {name}", "url": f"{RUNBOOKS}/{name}.md", "targetBlank": True} for name in panel.alerts
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": _OPTIONS[panel.kind],
    }
    if panel.kind == "table":
        document["transformations"] = _table_transformations(panel)
    return document


def _target(letter: str, query: Query, panel: Panel) -> dict[str, Any]:
    # The format of heat maps has Grafana subtract each series from the one above it.
    shape = panel.kind if panel.kind in ("table", "heatmap") and not panel.has_bands else "time_series"
    return {
        "refId": letter,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": shape,
        "instant": query.instant,
        "range": not query.instant,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps = panel.steps or ((None, COLOURS["champion"]),)
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": panel.minimum,
        "max": panel.maximum,
        "decimals": panel.decimals,
        "color": {"mode": "thresholds" if panel.kind in ("stat", "bargauge") else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]},
        "mappings": [
            {"type": "value", "options": {f"{value:g}": {"text": word, "color": colour, "index": index}}}
            for index, (value, word, colour) in enumerate(panel.words)
        ],
        "noValue": "no data",
        "custom": _CUSTOM.get(panel.kind, {}),
    }
    if panel.kind == "timeseries":
        stacking = {"mode": "normal", "group": "A"} if panel.stacked else {"mode": "none"}
        lines = {"mode": "dashed" if panel.steps else "off"}
        defaults["custom"] = {
            **_LINES,
            "fillOpacity": 25 if panel.stacked else 0,
            "stacking": stacking,
            "thresholdsStyle": lines,
        }
    return {name: value for name, value in defaults.items() if value is not None}


def _overrides(panel: Panel) -> Iterator[dict[str, Any]]:
    """Yield what is particular to some series: a role's colour, a limit's dashes, a column's unit."""
    if panel.kind == "timeseries":
        for role, colour in COLOURS.items():
            yield _override("byRegexp", f"/^{role}\\b/", ("color", {"mode": "shades", "fixedColor": colour}))
        yield _override("byRegexp", "/ limit$|^set$/", ("custom.lineStyle", {"fill": "dash", "dash": [10, 10]}))
    for name, title, unit in panel.columns:
        properties: list[tuple[str, Any]] = [("displayName", title), ("unit", unit)]
        if title == "Failed":
            properties += [_steps(ERROR_STEPS), ("custom.cellOptions", {"type": "color-text"}), ("decimals", 2)]
        if title == "Budget left":
            properties += [_steps(SHARE_STEPS), ("custom.cellOptions", {"type": "color-text"})]
        yield _override("byName", name, *properties)


def _steps(steps: Sequence[tuple[float | None, str]]) -> tuple[str, Any]:
    return ("thresholds", {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]})


def _override(kind: str, matched: str, *properties: tuple[str, Any]) -> dict[str, Any]:
    return {
        "matcher": {"id": kind, "options": matched},
        "properties": [{"id": name, "value": value} for name, value in properties],
    }


def _table_transformations(panel: Panel) -> list[dict[str, Any]]:
    """Join the queries by their labels, show the named columns in their order, and put the worst first."""
    order = {name: place for place, (name, _, _) in enumerate(panel.columns)}
    values = {"Value"} if len(panel.queries) == 1 else set()
    hidden = dict.fromkeys(sorted(({"Time"} | values) - order.keys()), True)
    transformations: list[dict[str, Any]] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"indexByName": order, "excludeByName": hidden, "renameByName": {}}},
    ]
    if "Value #B" in order:
        transformations.append({"id": "sortBy", "options": {"sort": [{"field": "Value #B", "desc": True}]}})
    return transformations


_LINES = {"drawStyle": "line", "lineWidth": 2, "showPoints": "never", "spanNulls": False, "axisSoftMin": 0}
_LEGEND = {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]}
_REDUCE = {"values": False, "calcs": ["lastNotNull"], "fields": ""}
_CUSTOM: dict[str, dict[str, Any]] = {
    "state-timeline": {"fillOpacity": 80, "lineWidth": 0},
    "table": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": False},
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {
        "reduceOptions": _REDUCE,
        "colorMode": "value",
        "graphMode": "area",
        "textMode": "auto",
        "justifyMode": "auto",
    },
    "bargauge": {"reduceOptions": _REDUCE, "displayMode": "basic", "orientation": "horizontal", "valueMode": "text"},
    "state-timeline": {
        "mergeValues": True,
        "showValue": "auto",
        "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "tooltip": {"mode": "single"},
    },
    "heatmap": {
        "calculate": False,
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "reverse": False},
        "yAxis": {"unit": "short", "decimals": 2},
        "rowsFrame": {"layout": "le"},
        "cellGap": 1,
        "tooltip": {"mode": "single", "yHistogram": True},
        "legend": {"show": True},
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}
