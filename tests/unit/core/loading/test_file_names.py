"""Paths within artifacts: none leads out of its folder, whoever has made it."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as some

from understudy.core.loading.file_names import path_within

names = some.lists(some.sampled_from(["a", "b", ".", "/", "..", "\\", "\0", "ä", "\ud800"]), max_size=12).map("".join)


@given(names)
def test_a_path_is_within_its_folder_or_refused(name):
    try:
        path = path_within(name)
    except ValueError:
        return

    assert os.path.normpath(f"/stage/part/{path}").startswith("/stage/part")
    assert ".." not in path.split("/")
    assert path_within(path) == path


@pytest.mark.parametrize(
    ("name", "path"), [("./1//model.onnx", "1/model.onnx"), ("./", ""), ("a/", "a"), ("...", "..."), ("a..b", "a..b")]
)
def test_a_path_is_written_in_one_way(name, path):
    assert path_within(name) == path


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "..",
        "a/../../b",
        "a/..",
        "a\0",
        "a\nb",
        "\x1b[31m",
        "\x7f",
        "x" * 256,
        "a/" * 33,
        f"{'x' * 250}/" * 5,
    ],
)
def test_what_leads_elsewhere_or_fits_no_disk_is_refused(name):
    with pytest.raises(ValueError, match=r"absolute|goes up|control character|too long|more than 32 folders"):
        path_within(name)
