import subprocess
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.digest import folder_digest

contents = st.dictionaries(st.text("abc/", min_size=1, max_size=5), st.binary(max_size=8), max_size=5)


def hexed(content: bytes) -> str:
    return sha256(content).hexdigest()


@given(contents, st.randoms(use_true_random=False))
def test_the_order_in_which_files_are_found_changes_nothing(files, random):
    listed = [(path, hexed(content)) for path, content in files.items()]
    shuffled = random.sample(listed, len(listed))

    assert folder_digest(listed) == folder_digest(shuffled)


def test_it_is_the_figure_that_people_get_with_sha256sum(tmp_path):
    names = ("1/model.onnx", "B", "a.txt", ".config", "1/.more/x", "class names.txt", "-n", "é")
    files = {name: name.encode() for name in names}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_bytes(content)
    by_hand = r"find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum -- | sha256sum"
    told = subprocess.run(by_hand, shell=True, cwd=tmp_path, capture_output=True, check=True).stdout.split()[0]

    assert folder_digest((path, hexed(content)) for path, content in files.items()) == f"sha256:{told.decode()}"


def test_a_changed_added_or_renamed_file_changes_it():
    before = [("a", hexed(b"1")), ("b", hexed(b"2"))]
    others = (
        [("a", hexed(b"1")), ("b", hexed(b"3"))],
        [*before, ("c", hexed(b""))],
        [("a", hexed(b"1")), ("c", hexed(b"2"))],
        [("a", hexed(b"2")), ("b", hexed(b"1"))],
    )

    assert folder_digest(before) not in map(folder_digest, others)
