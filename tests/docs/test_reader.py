"""The reader of pages: what is not as a page says fails, and nothing that it started stays."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.pages import BadPage, Block, Browse, See, Stop, Type, steps_of, why_unlike
from docs.reader import Reader, marked_processes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(ROOT, tmp_path, repeat_seconds=0.05)
    yield reader
    assert reader.leave() == []


def follow(reader: Reader, tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    for step in steps_of(page):
        reader.follow(step)


def shown(content: str, varies: str = "", language: str = "text") -> Block:
    return Block(1, language, content, {"varies": varies})


@pytest.mark.parametrize(
    ("shown_text", "varies", "said", "missing"),
    [
        ("a\nc\n", "", "a\nb\nc\n", None),
        ("c\na\n", "", "a\nb\nc\n", "a"),
        ("a  3 ms", "", "a 3 ms", None),
        ("a 3 ms", "", "a 4 ms", "a 3 ms"),
        ("a 3 ms", "numbers", "a 4,100.5 ms", None),
        ("a … z\n…\nlast", "", "a b c z\nwhatever\nlast", None),
        ("17 s ago", "times", "2 min ago", None),
        ("by root@host", "names", "by dana@laptop.local", None),
        ("▁▂▇ █░", "bars", "▇▁ ██░░", None),
        ("score 0.98, and", "numbers, ids", "score 0.99882495, and", None),
        ("key 0123abcd", "ids", "key deadbeef0", None),
        ("0:29 rolled back at 10 %: error rate 9 %\n          of 400", "reasons",
         "0:29 rolled back at 10 %: typical latency\n          40 ms\n          and more", None),
        ("whole line", "", "a whole line", "whole line"),
    ],
)  # fmt: skip
def test_every_line_that_is_shown_is_looked_for_and_only_what_varies_may_differ(shown_text, varies, said, missing):
    assert (why_unlike(shown(shown_text, varies), said) is None) == (missing is None)


def test_json_is_compared_however_it_is_folded():
    page = shown('{"a": 1,\n "id": "01a1…"}', "ids", "json")

    assert why_unlike(page, 'before\n{"a":1,"id":"01a1fa3d-d729-7257-ba41-af1b3c130b99"}\n') is None
    assert why_unlike(page, '{"a":2,"id":"01a1fa3d-d729-7257-ba41-af1b3c130b99"}') is not None


def test_a_terminal_keeps_its_folder_and_variables_and_another_one_has_its_own(reader: Reader, tmp_path: Path):
    follow(reader, tmp_path, """
```sh
mkdir here; cd here; export WHO=dana
```

```sh
echo "$WHO in ${PWD##*/}"
```

```text
dana in here
```

<!-- terminal: other -->
```sh
echo "${WHO-nobody} in ${PWD##*/}"
```

```text
nobody in understudy
```
""")  # fmt: skip


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("```sh\nfalse\necho fine\n```\n", "exit code 1 and not 0"),
        ("<!-- ends with: 3 -->\n```sh\ntrue\n```\n", "exit code 0 and not 3"),
        ("```sh\necho a\n```\n\n```text\nb\n```\n", "not in the output"),
        ("<!-- terminal: t -->\n<!-- goes on: ready -->\n```sh\necho no; exit 4\n```\n", "exit code 4"),
    ],
)
def test_what_is_not_as_the_page_says_fails(reader: Reader, tmp_path: Path, page: str, why: str):
    with pytest.raises(pytest.fail.Exception, match=why):
        follow(reader, tmp_path, page)


def test_what_goes_on_is_stopped_by_the_page_or_by_the_end_of_it(reader: Reader, tmp_path: Path):
    follow(reader, tmp_path, """
<!-- terminal: a -->
<!-- goes on: ready on 8080 -->
```sh
echo "ready on 8080"; sleep 1000
```

<!-- terminal: b -->
<!-- goes on: ready -->
```sh
echo ready; sleep 1000
```

<!-- shown by: a -->
```text
ready on 8080
```

<!-- Ctrl-C: a -->
""")  # fmt: skip
    before = marked_processes(reader.mark)

    left = reader.leave()

    if Path("/proc/self/environ").exists():
        assert before
    assert (left, marked_processes(reader.mark)) == ([], [])


@pytest.mark.deep
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not tell whose a process is")
def test_what_no_page_stops_is_named_and_ended(reader: Reader, tmp_path: Path):
    follow(reader, tmp_path, "```sh\n(trap '' INT TERM HUP; exec sleep 1000) > /dev/null 2>&1 &\n```\n")

    left = reader.leave(0.5)

    assert len(left) == 1
    give_up = time.monotonic() + 20
    while marked_processes(reader.mark) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert marked_processes(reader.mark) == []


def test_a_block_is_repeated_for_as_long_as_the_page_says(reader: Reader, tmp_path: Path):
    began = time.monotonic()

    follow(reader, tmp_path, """
<!-- within: 30 -->
```sh
echo x >> seen; [ "$(wc -l < seen)" -ge 3 ]; cat seen
```

```text
x
x
x
```
""")  # fmt: skip

    assert time.monotonic() - began < 30
    assert (reader.folder / "seen").read_text() == "x\n" * 3


@pytest.mark.parametrize(
    "page",
    [
        "<!-- terminal: a -->\nno block\n",
        "<!-- varies: numbers -->\n```sh\ntrue\n```\n",
        "```sql\nSELECT 1\n```\n",
        "```text\nan output of nothing\n```\n",
    ],
)
def test_a_page_that_cannot_be_understood_is_refused(tmp_path: Path, page: str):
    (tmp_path / "page.md").write_text(page)

    with pytest.raises(BadPage, match=r"page\.md:"):
        steps_of(tmp_path / "page.md")


def test_a_page_is_its_steps_in_order(tmp_path: Path):
    (tmp_path / "page.md").write_text(
        "<!-- terminal: t -->\n```sh\na\n```\n\n```text\nb\n```\n"
        "<!-- shown by: t -->\n```text\nc\n```\n<!-- Ctrl-C: t -->\n"
    )

    typed, seen, stopped = steps_of(tmp_path / "page.md")

    assert isinstance(typed, Type)
    assert (typed.terminal, [block.content for block in typed.shown]) == ("t", ["b\n"])
    assert isinstance(seen, See)
    assert (seen.terminal, seen.block.content) == ("t", "c\n")
    assert stopped == Stop("t")


def test_a_browser_is_told_in_words(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- browser: follow the link of demo -->\n<!-- browser: press Roll back -->\n"
        "<!-- browser: fill Reason with it is slow -->\n<!-- browser: choose 3 in Challenger -->\n"
        "<!-- browser: see Rolled back -->\n"
    )

    actions = [tuple(step.action) for step in steps_of(page) if isinstance(step, Browse)]

    assert actions == [
        ("follow the link of", "demo", ""),
        ("press", "Roll back", ""),
        ("fill", "Reason", "it is slow"),
        ("choose", "Challenger", "3"),
        ("see", "Rolled back", ""),
    ]
    page.write_text("<!-- browser: dance -->\n")
    with pytest.raises(BadPage, match=r"page\.md:1"):
        steps_of(page)
