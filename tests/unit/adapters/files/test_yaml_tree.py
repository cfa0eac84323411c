"""YAML and JSON as a tree: what was written and where, and the same for both."""

import json

import pytest

from understudy.adapters.files.yaml_tree import MAX_BYTES, TreeRefused, read_documents
from understudy.core.routing.policy_file import Entries, Items, Place, Scalar


def refused(content: bytes) -> TreeRefused:
    with pytest.raises(TreeRefused) as caught:
        read_documents(content)
    return caught.value


def test_a_plain_word_stays_as_it_was_written():
    (document,) = read_documents(b'a: 1.10\nb: off\nc: "7"\nd: 2026-11-20\ne: ~\n')

    assert isinstance(document, Entries)
    assert [(key.text, value) for key, value in document.entries] == [
        ("a", Scalar(Place(1, 4), "1.10")),
        ("b", Scalar(Place(2, 4), "off")),
        ("c", Scalar(Place(3, 4), "7", is_quoted=True)),
        ("d", Scalar(Place(4, 4), "2026-11-20")),
        ("e", Scalar(Place(5, 4), "~")),
    ]


def test_documents_that_are_empty_are_left_out():
    documents = read_documents(b"---\n# only a remark\n---\n[1, 2]\n---\n...\n")

    assert documents == [Items(Place(4, 1))]


def test_json_is_read_with_its_tabs_and_its_halves_of_characters():
    content = json.dumps({"a/b": "\U0001f600", "c": None}, indent="\t").replace("/", "\\/").encode()

    (document,) = read_documents(content, is_json=True)

    assert isinstance(document, Entries)
    assert [key.text for key, _ in document.entries] == ["a/b", "c"]
    assert document.entries[0][1] == Scalar(Place(2, 10), "\U0001f600", is_quoted=True)


@pytest.mark.parametrize(
    ("content", "place", "word"),
    [
        (b"a: [1\n", Place(2, 1), "no YAML"),
        (b"a: 1\n\tb: 2\n", Place(2, 1), "no YAML"),
        (b"a: 1\n b: 2\n", Place(2, 3), "no YAML"),
        (b"a: \xff\n", Place(1, 4), "UTF-8"),
        (b"a: 1\nb: x\x07y\n", Place(2, 5), "character"),
        (b"a: &x 1\n", Place(1, 4), "anchors"),
        (b"a: 1\nb: *x\n", Place(2, 4), "aliases"),
        (b"a: !!python/name:os.system\n", Place(1, 4), "tags"),
        (b"? [a]\n: 1\n", Place(1, 3), "word"),
        (b"a: " + b"[" * 5_000, Place(1, 11), "deep"),
        (b"a" * (MAX_BYTES + 1), Place(1, 1), "bytes"),
    ],
)
def test_what_is_refused_is_named_with_its_place(content, place, word):
    problem = refused(content)

    assert problem.place == place
    assert word in problem.detail
