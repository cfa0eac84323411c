"""Make the ``*_pb2.py`` and ``*_pb2.pyi`` files beside their ``.proto`` files, with the pinned grpcio-tools.

grpcio-tools 1.76.0 writes messages that load under protobuf 6 and 7; those of 1.85 refuse protobuf 6.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # ships neither stubs nor py.typed

FOLDER = Path(__file__).parent.parent / "src/understudy/adapters/_proto"


def main() -> int:
    builtin = files("grpc_tools") / "_proto"
    sources = sorted(str(path) for path in FOLDER.glob("*.proto"))
    command = ["protoc", f"-I{FOLDER}", f"-I{builtin}", f"--python_out={FOLDER}", f"--pyi_out={FOLDER}", *sources]
    failed = int(protoc.main(command))
    for stub in FOLDER.glob("*_pb2.pyi"):
        # protoc leaves the mapping that a constructor accepts without type arguments, which mypy --strict refuses.
        stub.write_text(stub.read_text().replace(", _Mapping]]", ", _Mapping[str, object]]]"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
