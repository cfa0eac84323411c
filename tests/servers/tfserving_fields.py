# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TensorFlow's venv: print the fields of TensorFlow Serving's own messages as JSON.

    python tfserving_fields.py <JSON: names of messages and enums>

A field is its number, its type and whether there may be several, by protobuf's own numbers.
"""

import json
import sys

from google.protobuf import descriptor_pool
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2  # noqa: F401  # registers them

PACKAGES = ("tensorflow.serving", "tensorflow", "tensorflow.serving.FileSystemStoragePathSourceConfig")
pool = descriptor_pool.Default()


def found(name):
    for package in PACKAGES:
        for find in (pool.FindMessageTypeByName, pool.FindEnumTypeByName):
            try:
                return find(f"{package}.{name}")
            except KeyError:
                continue
    return None


def fields_of(name):
    described = found(name)
    if described is None:
        return None
    if hasattr(described, "values"):
        return {value.name: value.number for value in described.values}
    return {field.name: [field.number, field.type, field.is_repeated] for field in described.fields}


sys.stdout.write(json.dumps({name: fields_of(name) for name in json.loads(sys.argv[1])}))
