"""Where the files of an artifact lie for each kind of model server, and what of them is not believed."""

import json
from pathlib import Path

import pytest

from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import LAYOUTS, MAX_CONFIG_BYTES
from understudy.errors import LoadRefused

NAME = "visits--7--0123abcd"


async def put(folder: Path, kind: str, files: dict[str, str], framework: str = "sklearn") -> dict[str, str]:
    """Put an artifact with these files into a repository, and return what lies there of it."""
    for name, text in files.items():
        (folder / "staged" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "staged" / name).write_text(text)
    await RepositoryFolder(folder / "models", LAYOUTS[kind]).put(NAME, folder / "staged", framework)
    place = folder / "models" / NAME
    return {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}


async def test_our_own_server_has_the_files_as_version_1(tmp_path):
    assert await put(tmp_path, "understudy", {"v7.onnx": "w"}) == {"1/v7.onnx": "w"}


@pytest.mark.parametrize(
    ("files", "uri"),
    [
        ({"visits #7.joblib": "w"}, "./1/model.joblib"),
        ({"weights": "w"}, "./1/model"),
        ({"MLmodel": "m", "data/model.pkl": "w"}, "./1"),
        ({"m.pkl": "w", "validation_cases.json": ""}, "./1/model.pkl"),
    ],
    ids=["a file", "without a suffix", "a folder", "a file with its cases"],
)
async def test_mlserver_gets_settings_of_the_agents_own_beside_the_files(tmp_path, files, uri):
    there = await put(tmp_path, "mlserver", files)

    assert json.loads(there.pop("model-settings.json")) == {
        "name": NAME,
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"version": "1", "uri": uri},
    }
    assert sorted(there.values()) == sorted(filter(None, files.values()))


async def test_settings_that_an_artifact_brings_for_mlserver_are_left_out_at_any_depth(tmp_path):
    evil = '{"name": "other", "implementation": "os.system"}'
    files = {"model.pkl": "w", "model-settings.json": evil, "deep/er/model-settings.json": evil}

    there = await put(tmp_path, "mlserver", files, "scikit-learn")

    assert [name for name, text in there.items() if text == evil] == []
    assert "mlserver_sklearn.SKLearnModel" in there["model-settings.json"]


async def test_a_framework_without_a_known_runtime_is_refused_by_name(tmp_path):
    with pytest.raises(LoadRefused, match="no runtime of MLServer is known for the framework 'onnx'; there are: cat"):
        await put(tmp_path, "mlserver", {"model.onnx": "w"}, "onnx")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"v7.onnx": "w"}, {"1/model.onnx": "w"}),
        ({"v7.onnx": "w", "config.pbtxt": 'name: "v7" a: 1'}, {"1/model.onnx": "w", "config.pbtxt": "a: 1"}),
        ({"saved_model.pb": "g", "variables/0": "v"}, "1/model.savedmodel"),
        ({"1/model.py": "p", "config.pbtxt": "a: 1"}, {"1/model.py": "p", "config.pbtxt": "a: 1"}),
        ({"model.onnx": "w", "weights": "v"}, {"1/model.onnx": "w", "1/weights": "v"}),
        ({"v7.onnx": "w", "validation_cases.parquet": "c"}, {"1/model.onnx": "w"}),
        ({"saved_model.pb": "g"}, "1/model.savedmodel"),
        (
            {"v7.onnx": "w", "config.pbtxt": 'default_model_filename: "v7.onnx"'},
            {
                "1/v7.onnx": "w",
                "config.pbtxt": 'default_model_filename: "v7.onnx"',
            },
        ),
    ],
    ids=[
        "a file",
        "with a configuration",
        "a SavedModel",
        "a folder of Triton",
        "several files",
        "with its cases",
        "a SavedModel without variables",
        "a file that its configuration names",
    ],
)
async def test_triton_gets_version_1_of_what_it_knows_and_a_configuration_without_a_name(tmp_path, files, expected):
    if isinstance(expected, str):
        expected = {f"{expected}/{name}": text for name, text in files.items()}

    assert await put(tmp_path, "triton", files) == expected


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"1/model.onnx": "w", "2/model.onnx": "w"}, "has the versions 1, 2: agents load version 1"),
        ({"model.onnx": "w", "config.pbtxt": "x" * (MAX_CONFIG_BYTES + 1)}, "more than 1,048,576 bytes"),
    ],
    ids=["two versions", "long"],
)
async def test_a_folder_that_triton_would_take_for_something_else_is_refused(tmp_path, files, said):
    with pytest.raises(LoadRefused, match=said):
        await put(tmp_path, "triton", files)


async def test_a_configuration_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged/config.pbtxt").write_bytes(b"\xff")

    with pytest.raises(LoadRefused, match="no UTF-8 text"):
        await put(tmp_path, "triton", {"model.onnx": "w"})


@pytest.mark.parametrize("kind", ["understudy", "triton"])
async def test_settings_of_mlserver_are_left_out_for_every_kind_of_server(tmp_path, kind):
    files = {"a.onnx": "w", "model-settings.json": "{}", "deep/model-settings.json": "{}", "deep/b": "w"}

    there = await put(tmp_path, kind, files)

    assert there == {"1/a.onnx": "w", "1/deep/b": "w"}


@pytest.mark.parametrize("folder", ["", "1/", "7/", "data/tensorflow_serving_model/model/"])
async def test_tensorflow_serving_gets_the_saved_model_as_version_1_wherever_it_lies(tmp_path, folder):
    files = {f"{folder}saved_model.pb": "g", f"{folder}variables/variables.index": "v", "validation_cases.json": "[]"}

    there = await put(tmp_path, "tfserving", files)

    assert there == {"1/saved_model.pb": "g", "1/variables/variables.index": "v"}


async def test_a_saved_model_at_the_root_is_taken_and_not_one_among_its_assets(tmp_path):
    there = await put(tmp_path, "tfserving", {"saved_model.pb": "g", "assets/saved_model.pb": "other"})

    assert there == {"1/saved_model.pb": "g", "1/assets/saved_model.pb": "other"}


async def test_several_saved_models_are_refused_by_their_folders(tmp_path):
    with pytest.raises(LoadRefused, match=r"2 folders with a saved_model\.pb: a, b: agents load one"):
        await put(tmp_path, "tfserving", {"a/saved_model.pb": "g", "b/saved_model.pb": "g"})
