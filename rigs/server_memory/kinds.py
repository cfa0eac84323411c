"""The kinds of models and servers that are measured, and where their libraries are."""

from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SERVERS: Final = ROOT / ".venv-servers"


class Kind(NamedTuple):
    """Models of one library, and the server that serves them."""

    server: str
    """As ``UNDERSTUDY_SERVER_KIND`` has it."""
    framework: str
    """As the versions are registered."""
    trains: str
    """The script of this folder that makes the models."""
    python: Path
    """The interpreter that has its libraries."""
    models: tuple[str, ...]
    """Folders that the script makes, the smallest model first."""
    is_flat: bool = False
    """Whether it is the file in the folder that is registered, and not the folder."""


KINDS: Final = {
    "onnx": Kind(
        "understudy", "onnx", "train_onnx.py", ROOT / ".venv-train/bin/python", ("logistic", "forest", "network")
    ),
    "sklearn": Kind(
        "mlserver",
        "sklearn",
        "train_sklearn.py",
        SERVERS / "mlserver/bin/python",
        ("logistic", "neighbours", "forest"),
    ),
    "numpy": Kind(
        "triton", "python", "train_numpy.py", SERVERS / "triton/bin/python", ("ridge-64", "ridge-2k", "ridge-3k")
    ),
    "torch": Kind(
        "torchserve",
        "torch",
        "train_torch.py",
        SERVERS / "torchserve/bin/python",
        ("network-16", "network-2k", "network-5k"),
    ),
}
"""By the library."""
