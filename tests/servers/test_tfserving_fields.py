"""Our messages of TensorFlow Serving against the official ones of tensorflow-serving-api (``make test-servers``)."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from servers.test_real_servers import VENVS

from understudy.adapters._proto import understudy_tfserving_pb2 as pb

PYTHON = VENVS / "tensorflow" / "bin" / "python"
SCRIPT = Path(__file__).parent / "tfserving_fields.py"


def named(messages: Any, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Give each message and enum of ours with its fields, those within others by both names."""
    for message in messages:
        name = f"{prefix}{message.name}"
        if not message.GetOptions().map_entry:
            yield name, {field.name: _described(field) for field in message.fields}
        yield from named(message.nested_types, f"{name}.")
        for enum in message.enum_types:
            yield f"{name}.{enum.name}", {value.name: value.number for value in enum.values}


def _described(field: FieldDescriptor) -> list[Any]:
    return [field.number, field.type, field.is_repeated]


@pytest.mark.parametrize("server", ["tensorflow"])
def test_every_field_of_the_private_messages_has_the_official_number_and_type(server):
    if not PYTHON.exists():
        pytest.skip(f"make test-servers installs {server}")
    file: Any = pb.DESCRIPTOR
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    ours = dict(named(messages))

    done = subprocess.run(
        [PYTHON, SCRIPT, orjson.dumps(list(ours)).decode()], capture_output=True, timeout=120, check=True
    )
    official = orjson.loads(done.stdout)

    assert {"ModelServerConfig", "ReloadConfigRequest", "ServableVersionPolicy.Specific"} <= ours.keys()
    for name, fields in ours.items():
        assert official[name] is not None, name
        for field, described in fields.items():
            there = official[name].get(field)
            # An error's code is an enum there, which is the same on the wire.
            allowed = (
                [described, [described[0], FieldDescriptor.TYPE_ENUM, False]]
                if isinstance(described, list)
                else [described]
            )
            assert there in allowed, f"{name}.{field}"
