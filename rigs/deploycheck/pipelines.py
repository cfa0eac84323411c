"""The pipelines of who forks us: their schemas, and that they only call ``make`` with as few rights as that takes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from rigs.deploycheck.findings import Finding
from rigs.deploycheck.ours import image_problem
from rigs.deploycheck.programs import schema_findings

WORKFLOWS = ".github/workflows"
GITLAB = ".gitlab-ci.yml"
RELEASE_NAME = "release.yml"
_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
_USES = re.compile(r"^\s*-?\s*uses:\s*(\S+)(.*)$", re.MULTILINE)
_VERSION_SAID = re.compile(r"\s+# v\d+(\.\d+)*\s*")
_RUNS = re.compile(
    r"(sudo )?make [a-z-]+( [A-Z]+=\S+)*"
    r"|(sudo )?apt-get update( && (sudo )?apt-get install [a-z0-9 -]+)?|apt-get install [a-z0-9 -]+"
)
_RANDOM = "UNDERSTUDY_TEST_RANDOM"
_TEST = "make test"
_KEYWORDS = frozenset({"default", "workflow", "stages", "variables", "include"})


def check_schemas(root: Path) -> list[Finding]:
    """Judge each pipeline by the schema of who runs it."""
    found = schema_findings("vendor.gitlab-ci", GITLAB, root)
    for path in workflows(root):
        found += schema_findings("vendor.github-workflows", path.relative_to(root).as_posix(), root)
    return found


def check_our_rules(root: Path) -> list[Finding]:
    """Judge what schemas leave open."""
    found = [Finding(GITLAB, what) for what in _of_gitlab(root)]
    for path in workflows(root):
        found += [Finding(path.relative_to(root).as_posix(), what) for what in _of_workflow(path)]
    return found


def check_random_draws(root: Path) -> list[Finding]:
    """Judge whether some pipeline on a schedule has the tests draw new examples: all others draw the same ones."""
    what = f"nothing draws anew: {_TEST} on a schedule, with {_RANDOM}=1"
    found = []
    if not any(_draws_anew(yaml.safe_load(path.read_text(encoding="utf-8"))) for path in workflows(root)):
        found.append(Finding(WORKFLOWS, what))
    document = yaml.safe_load((root / GITLAB).read_text(encoding="utf-8"))
    rules = document["workflow"]["rules"]
    is_set = any('"schedule"' in rule.get("if", "") and _is_on(rule.get("variables", {})) for rule in rules)
    if not (is_set and any(isinstance(job, dict) and _TEST in job.get("script", ()) for job in document.values())):
        found.append(Finding(GITLAB, what))
    return found


def _draws_anew(document: Mapping[Any, Any]) -> bool:
    events = document.get(True, document.get("on", {}))  # YAML 1.1 reads the key "on" as true
    jobs = document["jobs"].values()
    return "schedule" in events and any(
        _is_on(job.get("env", {})) and any(step.get("run") == _TEST for step in job["steps"]) for job in jobs
    )


def _is_on(variables: Mapping[str, Any]) -> bool:
    return variables.get(_RANDOM) == "1"


def workflows(root: Path) -> list[Path]:
    """Return the files of GitHub's workflows."""
    return sorted((root / WORKFLOWS).glob("*.y*ml"))


def _of_workflow(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    document: Mapping[str, Any] = yaml.safe_load(text)
    if document.get("permissions") != {"contents": "read"}:
        yield "may do more than read: permissions: {contents: read}"
    for action, rest in _USES.findall(text):
        if not _PINNED.fullmatch(action):
            yield f"{action} may become something else: pin the full commit"
        elif not _VERSION_SAID.fullmatch(rest):
            yield f"{action} does not say which version that is: # v1.2.3"
    for name, job in document["jobs"].items():
        if "timeout-minutes" not in job:
            yield f"{name} may run for hours: timeout-minutes"
        if "permissions" in job and path.name != RELEASE_NAME:  # which release.py judges
            yield f"{name} takes rights of its own"
        for step in job["steps"]:
            if "checkout" in str(step.get("uses")) and step.get("with", {}).get("persist-credentials") is not False:
                yield f"{name} leaves its token in the clone: persist-credentials: false"
            yield from _of_command(name, step.get("run"))


def _of_gitlab(root: Path) -> Iterator[str]:
    document: Mapping[str, Any] = yaml.safe_load((root / GITLAB).read_text(encoding="utf-8"))
    if "timeout" not in document["default"]:
        yield "jobs may run for hours: default.timeout"
    for name, job in document.items():
        problem = image_problem(str(job["image"])) if isinstance(job, dict) and "image" in job else None
        if problem is not None:
            yield f"{name}: {problem}"
        if name not in _KEYWORDS:
            for command in (*job.get("before_script", ()), *job["script"]):
                yield from _of_command(name, command)


def _of_command(job: str, command: str | None) -> Iterator[str]:
    if command is not None and not _RUNS.fullmatch(command.strip()):
        yield f"{job} runs {command.strip()!r}: pipelines call make, so that everybody can do what they do"
