"""Writes the rules of deploy/prometheus as the Prometheus operator reads them; called by ``make k8s-rules``.

The operator wants the groups inside an object of the cluster, and kustomize takes no file from outside its folder, so
this file is made, committed, and compared by ``make check-deploy``.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path("k8s/components/servicemonitor/prometheusrule.yaml")
HEAD = "# Made by `make k8s-rules` from deploy/prometheus; change it there.\n"


class _Readable(yaml.SafeDumper):  # type: ignore[misc]  # the package has no types
    """Writes texts of several lines as such."""


def _write_text(dumper: _Readable, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _write_text)


def rule_files(root: Path) -> list[Path]:
    """Return the files of rules under ``deploy/prometheus``: those that are nothing but groups."""
    found = sorted([*root.glob("deploy/prometheus/**/*.yml"), *root.glob("deploy/prometheus/**/*.yaml")])
    return [path for path in found if _groups_of(path) is not None]


def make_rule(root: Path) -> str:
    """Return the text of the object; without rules it is a comment, which makes no object."""
    groups = [group for path in rule_files(root) for group in _groups_of(path) or []]
    if not groups:
        return HEAD
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "understudy"},
        "spec": {"groups": groups},
    }
    text: str = yaml.dump(document, Dumper=_Readable, sort_keys=False, allow_unicode=True, width=120)
    return HEAD + text


def _groups_of(path: Path) -> list[Any] | None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or set(document) != {"groups"}:
        return None
    groups: list[Any] = document["groups"]
    return groups


def main() -> None:
    target = ROOT / TARGET
    target.write_text(make_rule(ROOT), encoding="utf-8")
    print(f"{TARGET}: {len(rule_files(ROOT))} files of rules", file=sys.stderr)


if __name__ == "__main__":
    main()
