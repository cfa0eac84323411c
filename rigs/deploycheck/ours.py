"""What our own processes understand: their variables, and their command lines."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from understudy.entrypoints.cli.shared.startup.noun_group import load
from understudy.entrypoints.cli.shared.startup.nouns import NOUNS
from understudy.settings import FILE_SUFFIX, Settings, is_secret, variable_of

IMAGE = "understudy"
BY_TAG = frozenset({IMAGE, "serving", "torchserve", "tritonserver", "mlserver"})
"""Images that a tag is enough for: our own, which kustomize and the pipelines name, and the model servers of trial
profiles and examples, whose digests were not to be had where this was written."""
OTHERS_READ = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_COMPRESSION",
    }
)
"""Variables that are none of the settings: libraries in our processes read them."""
_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@")
_NAMES_A_SECRET = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ROUTING_KEY|WEBHOOK_URL|OTLP_HEADERS")
DRAINS_OF: Mapping[str, int] = {"proxy": 3, "monitor": 1}
"""How often UNDERSTUDY_DRAIN_SECONDS may pass: callers who may ask once more, calls, the spool; a monitor's job."""


def is_ours(image: str) -> bool:
    """Whether an image is the one that our Dockerfile builds."""
    return name_of_image(image) == IMAGE


def name_of_image(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def is_redis(image: str) -> bool:
    """Whether an image is a server of the shared cache."""
    return name_of_image(image) in ("redis", "valkey")


def login_problem(words: Sequence[str]) -> str | None:
    """Say whether a Redis that is started with these words lets any client in."""
    if "--aclfile" in words:
        return None
    return "lets any client in: --aclfile, with a file of a secret (an argument is seen by every process)"


def image_problem(image: str) -> str | None:
    """Say what is wrong with how an image is named, if anything is: people need a tag, and machines a digest."""
    if name_of_image(image) == "redis":
        return f"{image} is under licences that are not free from 7.4 on; valkey/valkey speaks the same, under BSD"
    named, at, digest = image.partition("@")
    tag = named.rpartition("/")[2].partition(":")[2]
    if at and re.fullmatch(r"sha256:[0-9a-f]{64}", digest) is None:
        return f"{image} has a digest that is none"
    if tag == "latest" or not (tag or at):
        return f"{image} says nothing about what will run: name a tag other than latest, and a digest"
    if not at and name_of_image(image) not in BY_TAG:
        return f"{image} may become another image: name it with its digest, {image}@sha256:…"
    return None


def secret_problem(name: str, value: str) -> str | None:
    """Say whether an environment variable carries a secret in plain sight."""
    if _WITH_PASSWORD.search(value):
        return f"{name} has a password in it: name a file of a secret"
    if value and _NAMES_A_SECRET.search(name) and not name.endswith(FILE_SUFFIX):
        return f"{name} is a secret: name a file of one with {name}{FILE_SUFFIX}"
    return None


@cache
def variables() -> Mapping[str, str]:
    """Return the field of the settings of each variable that a process reads."""
    found = {}
    for name, field in Settings.model_fields.items():
        found[variable_of(name, field)] = name
        if is_secret(field):
            found[variable_of(name, field) + FILE_SUFFIX] = name
    return found


def variable_problem(name: str, value: str | None) -> str | None:
    """Say what is wrong with a variable of one of our processes, if anything is.

    Its value is ``None`` where the cluster gives it.
    """
    field = variables().get(name)
    if field is None and name in OTHERS_READ:
        return None
    if field is None:
        return f"no process reads {name}"
    if value is None or name.endswith(FILE_SUFFIX):
        return None
    try:
        Settings.model_validate({field: value})
    except ValidationError as problem:
        return f"{name}={value}: {problem.errors()[0]['msg']}"
    return None


def command_problem(arguments: Sequence[str]) -> str | None:
    """Say what is wrong with the arguments of ``understudy``, if anything is."""
    if not arguments or arguments[0] not in NOUNS:
        return f"understudy has no command {' '.join(arguments[:1]) or '(none)'}"
    command: Any = load(arguments[0])
    verbs = getattr(command, "commands", None)
    if verbs is not None:
        if len(arguments) == 1 or arguments[1] not in verbs:
            return f"understudy {arguments[0]} has no command {' '.join(arguments[1:2]) or '(none)'}"
        command = verbs[arguments[1]]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    unknown = [word for word in arguments if word.startswith("--") and word.partition("=")[0] not in known]
    return f"understudy {arguments[0]} has no option {unknown[0]}" if unknown else None
