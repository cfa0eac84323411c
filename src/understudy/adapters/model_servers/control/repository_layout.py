"""How each kind of model server wants a model's files to lie in its repository.

What the files say of the model's name, or of the code that serves it, is not believed: names are the agent's, and
MLServer's runtime follows from the registered framework.
"""

import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from understudy.adapters.model_servers.control.triton_config import without_name
from understudy.core.loading.cases import CASE_FILES
from understudy.core.loading.served_name import SERVED_VERSION
from understudy.errors import LoadRefused

Copy = Callable[[str, str], object]
"""Puts one file at another place."""
Layout = Callable[[Path, Path, str, str, Copy], None]
"""Puts the files of a staged folder into an empty folder, given the model's name, its framework, and how files go."""
MLSERVER_SETTINGS: Final = "model-settings.json"
MLSERVER_RUNTIMES: Final[Mapping[str, str]] = {
    "catboost": "mlserver_catboost.CatboostModel",
    "lightgbm": "mlserver_lightgbm.LightGBMModel",
    "mlflow": "mlserver_mlflow.MLflowRuntime",
    "scikit-learn": "mlserver_sklearn.SKLearnModel",
    "sklearn": "mlserver_sklearn.SKLearnModel",
    "xgboost": "mlserver_xgboost.XGBoostModel",
}
"""By the framework of a version. A runtime is code, so no artifact names its own."""
SAVED_MODEL: Final = "saved_model.pb"
TRITON_CONFIG: Final = "config.pbtxt"
MAX_CONFIG_BYTES: Final = 1_048_576
_NAMES_FILE: Final = re.compile(r"^\s*default_model_filename\s*:", re.MULTILINE)
"""What a configuration has that says which file the model is."""
_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,20}")


def own_layout(source: Path, place: Path, _name: str, _framework: str, copy: Copy) -> None:
    """Put them into ``1``, as the development model server reads them."""
    _copy_tree(source, place / SERVED_VERSION, copy, at_root=())


def mlserver_layout(source: Path, place: Path, name: str, framework: str, copy: Copy) -> None:
    """Put them into ``1``, with settings of the agent's own beside it.

    Raises:
        LoadRefused: No runtime is known for the framework.
    """
    runtime = MLSERVER_RUNTIMES.get(framework.lower())
    if runtime is None:
        known = ", ".join(MLSERVER_RUNTIMES)
        raise LoadRefused(f"no runtime of MLServer is known for the framework {framework[:50]!r}; there are: {known}")
    _copy_tree(source, place / SERVED_VERSION, copy, at_root=CASE_FILES)
    file = _sole_file(place / SERVED_VERSION)
    parameters = {"version": SERVED_VERSION, "uri": f"./{SERVED_VERSION}" if file is None else f"./1/{file.name}"}
    settings = {"name": name, "implementation": runtime, "parameters": parameters}
    (place / MLSERVER_SETTINGS).write_text(json.dumps(settings))


def triton_layout(source: Path, place: Path, _name: str, _framework: str, copy: Copy) -> None:
    """Put them into ``1``, or into what Triton expects there; a configuration goes beside it, without its name.

    A folder with the version ``1`` in it is a model's folder of Triton already, and one with ``saved_model.pb`` a
    TensorFlow SavedModel. Else a single file gets the name ``model`` before its suffix, unless the configuration has
    its name.

    Raises:
        LoadRefused: The folder has other versions, or a configuration that is no text or too long.
    """
    versions = sorted(path.name for path in source.iterdir() if path.is_dir() and path.name.isdigit())
    if versions not in ([], [SERVED_VERSION]):
        raise LoadRefused(f"the artifact has the versions {', '.join(versions[:5])}: agents load version 1 of a folder")
    files = place / SERVED_VERSION
    if versions:
        files = place
    is_saved_model = not versions and (source / SAVED_MODEL).is_file()
    if is_saved_model:
        files = files / "model.savedmodel"
    _copy_tree(source, files, copy, at_root=(TRITON_CONFIG, *CASE_FILES))
    config = _config_of(source) if (source / TRITON_CONFIG).is_file() else ""
    if not (versions or is_saved_model or _NAMES_FILE.search(config)):
        _sole_file(files)
    if config:
        (place / TRITON_CONFIG).write_text(without_name(config))


def tfserving_layout(source: Path, place: Path, _name: str, _framework: str, copy: Copy) -> None:
    """Put a SavedModel into ``1``: that at the root, else the only one in the folder.

    Raises:
        LoadRefused: There is none, or there are several.
    """
    found = sorted(path.parent for path in source.rglob(SAVED_MODEL))
    if source not in found and len(found) != 1:
        where = f": {', '.join(str(path.relative_to(source)) for path in found[:3])}" if found else ""
        raise LoadRefused(f"the artifact has {len(found)} folders with a {SAVED_MODEL}{where}: agents load one")
    _copy_tree(source if source in found else found[0], place / SERVED_VERSION, copy, at_root=CASE_FILES)


LAYOUTS: Final[Mapping[str, Layout]] = {
    "understudy": own_layout,
    "mlserver": mlserver_layout,
    "triton": triton_layout,
    "tfserving": tfserving_layout,
}
"""By ``UNDERSTUDY_SERVER_KIND``."""


def _copy_tree(source: Path, target: Path, copy: Copy, *, at_root: Collection[str]) -> None:
    """Copy a folder without files of these names at its root, and without settings of MLServer.

    MLServer takes each of those, however deep, for a model, and runs the code that it names. An agent that was told
    another kind may have such a server before it all the same.
    """

    def left_out(folder: str, _: list[str]) -> set[str]:
        return {MLSERVER_SETTINGS, *(at_root if Path(folder) == source else ())}

    shutil.copytree(source, target, copy_function=copy, ignore=left_out, dirs_exist_ok=True)


def _sole_file(folder: Path) -> Path | None:
    """Give the one file of a folder the name that servers look for, and return it; ``None``: there are more."""
    files = list(folder.iterdir())
    if len(files) != 1 or not files[0].is_file():
        return None
    suffix = files[0].suffix
    return files[0].rename(folder / f"model{suffix if _SUFFIX.fullmatch(suffix) else ''}")


def _config_of(source: Path) -> str:
    path = source / TRITON_CONFIG
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise LoadRefused(f"{TRITON_CONFIG} has more than {MAX_CONFIG_BYTES:,} bytes")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise LoadRefused(f"{TRITON_CONFIG} is no UTF-8 text") from None
