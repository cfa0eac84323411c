"""The manifests: what kustomize makes of them, judged by Kubernetes' own schemas and by our policy."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from rigs.deploycheck import custom_kinds
from rigs.deploycheck.findings import Finding, ToolMissing
from rigs.deploycheck.policy import judge
from rigs.deploycheck.programs import find, output_of

FOLDER = "k8s"
KUBERNETES = "1.34"
"""The newest version that the manifests are judged by; preStop's sleep and sidecars need 1.30, image volumes 1.33."""
UNUSED = "no overlay or example has it, so it is not judged"
Objects = Sequence[Mapping[str, Any]]
# libyaml's, where PyYAML was built with it: a fifth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def trees(root: Path) -> list[str]:
    """Return every folder that an operator may apply: overlays and examples."""
    found = [*root.glob(f"{FOLDER}/overlays/*"), *root.glob(f"{FOLDER}/examples/*")]
    return sorted(path.relative_to(root).as_posix() for path in found if path.is_dir())


def check_builds(root: Path) -> list[Finding]:
    """Judge whether each tree builds, and whether every component is in one of them."""
    found = [Finding(tree, said) for tree in trees(root) if isinstance(said := _built(root, tree), str)]
    used = {path for tree in trees(root) for path in _components_of(root / tree)}
    components = sorted((root / FOLDER / "components").iterdir())
    found += [Finding(f"{FOLDER}/components/{one.name}", UNUSED) for one in components if one.resolve() not in used]
    return found


def check_schemas(root: Path) -> list[Finding]:
    """Judge each object by the schema of its kind; unknown fields are mistakes."""
    found = []
    judged: dict[str, str | None] = {}  # most objects are in several trees, and judging one reads all of the schemas
    for tree, objects in built_trees(root):
        for one in objects:
            written = repr(one)
            if written not in judged:
                judged[written] = _schema_problem(one)
            if (problem := judged[written]) is not None:
                found.append(Finding(f"{tree} {name_of(one)}", problem))
    return found


def check_policy(root: Path) -> list[Finding]:
    """Judge each tree by what we ask of a deployment."""
    return [Finding(f"{tree} {where}", what) for tree, objects in built_trees(root) for where, what in judge(objects)]


def built_trees(root: Path) -> Iterator[tuple[str, Objects]]:
    """Yield each tree that builds, with its objects."""
    for tree in trees(root):
        made = _built(root, tree)
        if not isinstance(made, str):
            yield tree, made


def name_of(one: Mapping[str, Any]) -> str:
    """Return ``Deployment/understudy-proxy``."""
    return f"{one.get('kind')}/{one.get('metadata', {}).get('name')}"


@cache
def _built(root: Path, tree: str) -> Objects | str:
    """Return a tree's objects, or why there are none."""
    status, said = output_of([*_kustomize(), tree], root)
    if status != 0:
        return said
    return [one for one in yaml.load_all(said, _LOADER) if one]


def _kustomize() -> list[str]:
    advice = "install kubectl (or kustomize); its release page has both as one file"
    try:
        return [find("kustomize", advice), "build"]
    except ToolMissing:
        return [find("kubectl", advice), "kustomize"]


def _components_of(folder: Path) -> Iterator[Path]:
    document = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    for entry in document.get("components", ()):
        yield (folder / entry).resolve()
    for entry in document.get("resources", ()):
        if (folder / entry).is_dir():
            yield from _components_of(folder / entry)


def _schema_problem(one: Mapping[str, Any]) -> str | None:
    schema = custom_kinds.SCHEMAS.get((str(one.get("apiVersion")), str(one.get("kind"))))
    try:
        if schema is None:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
        else:
            jsonschema.validate(one, schema)
    except jsonschema.ValidationError as problem:
        return f"{'.'.join(map(str, problem.absolute_path))}: {problem.message[:200]}"
    except kubernetes_validate.SchemaNotFoundError:
        return f"Kubernetes {KUBERNETES} has no {one.get('apiVersion')} {one.get('kind')}"
    return None
