"""Alerts, runbooks and dashboards name only what there is, and nothing is without its page, its test or its words."""

import json
import re
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from architecture.test_docs import known_metrics

from tools import make_links
from tools.dashboards.grafana import RUNBOOKS as RUNBOOKS_URL
from tools.make_dashboards import DASHBOARDS, outdated
from tools.make_prometheus_rule import TARGET

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULE_FILES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
RULE_TESTS = sorted((ROOT / "tests" / "watch" / "rules").glob("*.yml"))
OF_PROMETHEUS = {"ALERTS": {"alertname", "alertstate", "severity"}, "up": {"job", "instance"}}
HEADINGS = ["Meaning", "Impact", "First three commands", "How to end it"]
WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Eight times as fast where the library was built with it."""


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)


def rules() -> Iterator[dict[str, Any]]:
    for path in RULE_FILES:
        for group in read(path)["groups"]:
            yield from group["rules"]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def metrics_in(expr: str) -> set[str]:
    """Return the names in a query that are neither functions, nor labels, nor words of the language."""
    text = re.sub(r"#.*", "", expr)
    text = re.sub(r'"[^"]*"', "", text)
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", text)
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*(\([^)]*\))?", "", text)
    names = re.findall(r"(?<![\w:.])([a-zA-Z_][\w:]*)(?!\s*\()\b(?![\w:])", text)
    return {name for name in names if name not in WORDS}


def test_names_are_found_in_queries():
    assert metrics_in(
        'sum by (le) (rate(a_bucket{x="b",y=~"c|d"}[5m])) / on (m) group_left () d:e:f5m > 14.4 * 1e-3'
    ) == {
        "a_bucket",
        "d:e:f5m",
    }
    assert metrics_in("time() - max(a) > 300 or absent(b) # c") == {"a", "b"}


def is_known(name: str) -> bool:
    known = known_metrics()
    kind, _ = known.get(re.sub("_(bucket|sum|count)$", "", name), ("", ()))
    is_part = kind == "histogram" and name not in known
    is_whole = known.get(name, ("histogram", ()))[0] != "histogram"
    return is_part or is_whole or name in RECORDED | OF_PROMETHEUS.keys()


class Asked(NamedTuple):
    where: str
    expr: str


def asked() -> Iterator[Asked]:
    """Yield every query of rules, panels, annotations and variables."""
    for rule in rules():
        yield Asked(rule.get("alert") or rule["record"], rule["expr"])
    for name, document in DOCUMENTS.items():
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                yield Asked(f"{name}: {panel['title']}", target["expr"])
        for annotation in document["annotations"]["list"]:
            yield Asked(f"{name}: {annotation['name']}", annotation["expr"])
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                yield Asked(
                    f"{name}: ${variable['name']}", re.sub(r"label_values\((\w+), \w+\)", r"\1", variable["definition"])
                )


DOCUMENTS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
}


def test_every_query_names_metrics_that_there_are():
    for query in asked():
        assert metrics_in(query.expr), query.where
        assert [name for name in metrics_in(query.expr) if not is_known(name)] == [], query.where


def labels_of(name: str) -> set[str]:
    """Return the labels that a metric has once Prometheus has read it."""
    if name in OF_PROMETHEUS:
        return OF_PROMETHEUS[name]
    if name in RECORDED:
        return {"model"}
    _, labels = known_metrics().get(re.sub("_(bucket|sum|count)$", "", name)) or known_metrics().get(name) or ("", ())
    own = {"exported_job" if label == "job" else label for label in labels}
    return own | {"instance", "pid"} | ({"le"} if name.endswith("_bucket") else set())


def unknown_labels_in(expr: str) -> set[str]:
    """Return the labels of an expression that its metrics do not have."""
    expr, unknown = re.sub(r"#.*", "", expr), set()
    for name, matchers in re.findall(r"([a-zA-Z_][\w:]*)\{([^}]*)\}", expr):
        unknown |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - labels_of(name)
    made = set(re.findall(r'label_replace\(.*?"(\w+)", "\$1"', expr, re.DOTALL))
    there = made.union(*(labels_of(name) for name in metrics_in(expr)))
    for names in re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expr):
        unknown |= {name.strip() for name in names.split(",") if name.strip()} - there
    return unknown


def test_every_query_names_labels_that_its_metrics_have():
    assert {query.where: found for query in asked() if (found := unknown_labels_in(query.expr))} == {}


# -- alerts and runbooks -----------------------------------------------------------------------------------------------


def test_an_alert_says_what_it_is_and_where_to_go_on():
    for name, rule in ALERTS.items():
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url", "dashboard_url"}, name
        assert rule["labels"]["severity"] in {"critical", "warning"}, name
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS_URL}/{name}.md"
        dashboard = re.search(r"/d/understudy-(\w+)", rule["annotations"]["dashboard_url"])
        assert dashboard is not None, name
        assert dashboard.group(1) in DOCUMENTS, name


def test_an_alert_has_a_runbook_with_its_parts_and_three_commands():
    for name in ALERTS:
        text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {name}\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS, name
        parts = [part.strip() for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]]
        assert all(parts), name
        # That each of them exists with its options, tests/architecture/test_docs.py says of every page.
        assert len(re.findall(r"^understudy .+$", parts[2], re.MULTILINE)) == 3, name


def test_there_is_no_runbook_of_an_alert_that_there_is_not_and_the_list_names_each_with_its_severity():
    listed = re.findall(
        r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \| ([\w ]+) \|", (RUNBOOKS / "README.md").read_text(), re.MULTILINE
    )

    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == ALERTS.keys()
    assert sorted(listed) == sorted(
        (name, name, rule["labels"]["severity"], rule.get("for", "at once")) for name, rule in ALERTS.items()
    )


def test_every_alert_has_a_unit_test_that_fires_it_and_one_that_keeps_it_silent():
    expected: dict[str, set[bool]] = {}
    for path in RULE_TESTS:
        for test in read(path)["tests"]:
            for case in test["alert_rule_test"]:
                expected.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))

    assert expected == {name: {True, False} for name in ALERTS}


def test_no_two_alerts_have_one_name():
    names = [rule["alert"] for rule in rules() if "alert" in rule]

    assert len(names) == len(set(names))


# -- alertmanager ------------------------------------------------------------------------------------------------------


def test_alertmanager_names_alerts_that_there_are_and_reads_its_secrets_from_files():
    config = read(DEPLOY / "alertmanager" / "alertmanager.yml")

    matchers = [
        matcher
        for rule in config["inhibit_rules"]
        for key in ("source_matchers", "target_matchers")
        for matcher in rule[key]
    ]
    named = {name for matcher in matchers for name in re.findall(r"[A-Z]\w+", matcher)}
    assert named
    assert named <= ALERTS.keys()
    (pager,) = [one for receiver in config["receivers"] for one in receiver.get("pagerduty_configs", ())]
    assert "routing_key" not in pager
    assert pager["routing_key_file"].startswith("/etc/alertmanager/secrets/")


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_what_pages_within_a_minute_is_read_and_judged_as_often_on_kubernetes():
    config = read(DEPLOY / "prometheus" / "prometheus.yml")["global"]
    (endpoint,) = read(ROOT / "k8s" / "components" / "servicemonitor" / "servicemonitor.yaml")["spec"]["endpoints"]
    groups = {group["name"]: group for path in RULE_FILES for group in read(path)["groups"]}
    operators = {group["name"]: group for group in read(ROOT / TARGET)["spec"]["groups"]}

    assert endpoint["interval"] == config["scrape_interval"] == config["evaluation_interval"] == "10s"
    for name in ("understudy-serving", "understudy-slo-records", "understudy-slo"):
        assert groups[name]["interval"] == operators[name]["interval"] == config["evaluation_interval"], name


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_every_link_of_an_alert_and_a_panel_is_as_the_setting_has_it():
    assert {path.relative_to(ROOT).as_posix() for path in make_links.outdated()} == set(), "run make links"
    assert f"{make_links.links_of().docs}/runbooks" == RUNBOOKS_URL


def test_one_setting_moves_every_link_wherever_it_led_before(tmp_path):
    for folder in ("deploy", "tests/watch/rules"):
        ignored = shutil.ignore_patterns("secrets", "__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)

    for docs, grafana in (
        ("https://docs.shop.example/a/b/", "http://g.shop.example:3000"),
        ("https://d", "https://g/x"),
    ):
        (tmp_path / make_links.SETTING).write_text(f'docs = "{docs}"\ngrafana = "{grafana}"\n', encoding="utf-8")
        for path, text in make_links.outdated(tmp_path).items():
            path.write_text(text, encoding="utf-8")

    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*") if has_another_address(path)}
    # The generator of dashboards reads the setting of its own checkout, and make links calls it.
    assert {path for path in left if not path.startswith("deploy/grafana/dashboards/")} == set()
    assert (
        "runbook_url: https://d/runbooks/RolledBack.md"
        in (tmp_path / "deploy/prometheus/rules/rollouts.yml").read_text()
    )


@pytest.mark.parametrize("setting", ['docs = "https://d"', 'docs = "d"\ngrafana = "https://g"', 'docs = "https://a b"'])
def test_a_setting_that_is_no_address_is_named(tmp_path, setting):
    (tmp_path / "deploy").mkdir()
    (tmp_path / make_links.SETTING).write_text(setting, encoding="utf-8")

    with pytest.raises(ValueError, match=r"links\.toml: (docs|grafana) is no address"):
        make_links.links_of(tmp_path)


def has_another_address(path: Path) -> bool:
    return (
        path.is_file() and re.search(r"understudy\.example|shop\.example", path.read_text(encoding="utf-8")) is not None
    )


# -- dashboards --------------------------------------------------------------------------------------------------------


def test_the_committed_dashboards_are_what_the_generator_writes():
    assert outdated() == [], "run make dashboards"
    assert [f"understudy-{name}" for name in DOCUMENTS] == sorted(document["uid"] for document in DOCUMENTS.values())
    assert len(DASHBOARDS) == len(DOCUMENTS) == 6


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_dashboard_lies_within_the_grid_and_no_panel_upon_another(name):
    places = [panel["gridPos"] for panel in DOCUMENTS[name]["panels"]]

    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_panel_says_what_a_good_value_is_and_links_runbooks_that_there_are(name):
    panels = [panel for panel in DOCUMENTS[name]["panels"] if panel["type"] != "row"]

    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert [link["title"].removeprefix("Runbook: ") for link in panel["links"]] == [
            alert for link in panel["links"] for alert in ALERTS if link["url"] == f"{RUNBOOKS_URL}/{alert}.md"
        ]
    titles = [panel["title"] for panel in panels]
    assert len(titles) == len(set(titles))


def test_every_alert_is_linked_from_a_panel():
    linked = {
        link["url"].rpartition("/")[2].removesuffix(".md")
        for document in DOCUMENTS.values()
        for panel in document["panels"]
        for link in panel.get("links", ())
    }

    assert linked == ALERTS.keys()


def test_grafana_finds_the_dashboards_and_prometheus_where_they_are_provisioned():
    (source,) = read(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    (provider,) = read(DEPLOY / "grafana" / "provisioning" / "dashboards" / "understudy.yml")["providers"]

    assert (source["type"], source["uid"]) == ("prometheus", "prometheus")
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    for document in DOCUMENTS.values():
        variable = document["templating"]["list"][0]
        assert (variable["type"], variable["current"]["value"]) == ("datasource", source["uid"])
