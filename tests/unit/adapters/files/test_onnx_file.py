"""Inputs and outputs of ONNX files that converters wrote, and of bytes that are none."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.files.onnx_file import read_onnx
from understudy.adapters.files.refusal import FileRefused
from understudy.core.schema.described import DescribedTensor

MODELS = Path(__file__).parents[4] / "src/understudy/models"


def varint(number: int) -> bytes:
    head = b"" if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)
    return head or bytes([number])


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def value(name: str, element: int, *sizes: int | str) -> bytes:
    shape = b"".join(field(1, field(1, one) if isinstance(one, int) else field(2, one.encode())) for one in sizes)
    return field(1, name.encode()) + field(2, field(1, field(1, element) + field(2, shape)))


def a_file(tmp_path: Path, *graph: bytes) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(field(1, 9) + field(2, b"a converter") + field(7, b"".join(graph)))
    return path


def test_a_file_of_skl2onnx_has_its_tensors_with_a_free_batch():
    found = read_onnx(MODELS / "visits-2.onnx")

    assert found.inputs == (DescribedTensor("input", "FP32", (-1, 9)),)
    assert found.outputs == (
        DescribedTensor("label", "INT64", (-1,)),
        DescribedTensor("probabilities", "FP32", (-1, 2)),
    )
    assert found.framework == "onnx"


def test_weights_that_are_listed_as_inputs_are_none(tmp_path):
    weight = field(1, 4) + field(8, b"W") + field(9, bytes(100_000))
    path = a_file(
        tmp_path, field(1, b"a node"), field(5, weight), field(11, value("X", 1, "N", 3)), field(11, value("W", 1, 3)),
        field(12, value("Y", 11, "N")),
    )  # fmt: skip

    found = read_onnx(path)

    assert found.inputs == (DescribedTensor("X", "FP32", (-1, 3)),)
    assert found.outputs == (DescribedTensor("Y", "FP64", (-1,)),)


def test_what_no_proxy_reads_is_told_in_words(tmp_path):
    sequence = field(1, b"output_probability") + field(2, field(4, b""))
    path = a_file(tmp_path, field(11, value("X", 10, 0, 2)), field(12, sequence))

    found = read_onnx(path)

    assert found.inputs == (DescribedTensor("X", "FP16", (-1, 2)),)
    assert found.outputs == (DescribedTensor("output_probability", "a sequence", None),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it holds no graph"),
        (b"<html>", "no ONNX model"),
        (field(7, b"")[:1] + varint(2**40), "it ends within a field"),
        (field(7, field(11, field(1, b"x" * 2_000))), "a name has more than 1,024 bytes"),
        (field(7, field(11, field(1, b"\xff"))), "a name is no UTF-8"),
        (field(7, b"") * 2, "it holds several graphs"),
        (b"\xff" * 20, "no protobuf message"),
    ],
    ids=["empty", "a page", "cut", "long name", "bytes", "two graphs", "no end"],
)
def test_what_is_no_model_is_refused_in_words(tmp_path, content, words):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    with pytest.raises(FileRefused, match=words):
        read_onnx(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileRefused, match="cannot be read: No such file"):
        read_onnx(tmp_path / "model.onnx")


def test_a_pipe_a_folder_and_a_device_are_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(FileRefused, match="pipe cannot be read: it is a pipe or a device"):
        read_onnx(pipe)
    with pytest.raises(FileRefused, match="cannot be read: it is a folder"):
        read_onnx(tmp_path)
    with pytest.raises(FileRefused, match="cannot be read: it is a pipe or a device"):
        read_onnx(Path("/dev/zero"))


@pytest.mark.deep
@given(content=st.binary(max_size=200), keep=st.integers(0, 607), place=st.integers(0, 606))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(tmp_path_factory, content, keep, place):
    good = (MODELS / "visits-1.onnx").read_bytes()
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(good[:place] + content + good[place:keep])

    try:
        read_onnx(path)
    except FileRefused:
        return
