"""The page: what it says, and that it needs nothing and runs nothing."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

from dmlc.qualify.page import write_page
from dmlc.qualify.record import Answers, Limit
from tests.qualify.records import (
    COPIED,
    FAILURE,
    MACHINE,
    REASON,
    SPEEDS,
    TESTS,
    fail,
    make_record,
)

EVIL = "<script>alert(1)</script>\" onload='x' & </style>"


class _Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def read(page: str) -> _Page:
    found = _Page(page)
    assert found.open == []
    return found


def test_a_right_device() -> None:
    page = read(write_page(make_record()))
    assert "Card is qualified: whatever was asked of it is right." in page.text
    assert "All 17 cases of the library's 2 operators pass" in page.text
    assert "17 of 17 cases passed, of 2 operators" in page.text
    assert re.search(r"transpose\s+64 x 64\s+2\.00\s*200 µs\s*0\.328 GB/s", page.text)


def test_a_wrong_device() -> None:
    speed = dataclasses.replace(COPIED, problem="the device was lost")
    tests = dataclasses.replace(fail(FAILURE), unsupported=(REASON,), left=("a.DIV",))
    record = make_record(
        answers=Answers(("sqrt(A) is 1, not 2",), "", 0.0), tests=tests,
        speeds=dataclasses.replace(SPEEDS, kernels=(speed,)),
    )  # fmt: skip
    text = read(write_page(record)).text
    for said in (
        "Card is not qualified.", "Why it is not qualified:",
        "The device gets 1 known answer wrong",
        "a.MUL: a result is not near enough", "y: 1 of 2 elements differ", "a.DIV",
        "dmlc test --replay report/kept/a.MUL-1", "WGSL has no FLOAT64",
        "not timed: the device was lost",
    ):  # fmt: skip
        assert said in text


def test_it_is_one_file_for_any_screen() -> None:
    page = write_page(make_record())
    tags = read(page).tags
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags}
    assert not re.search(r"https?:|url\(|@import|src=|href=", page)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in tags
    assert "@media (prefers-color-scheme: dark)" in page


def test_every_text_is_escaped() -> None:
    """A driver's names and messages, and whoever sends a file, are strangers."""
    machine = dataclasses.replace(
        MACHINE, selector=EVIL, runtime=EVIL, name=EVIL, driver=EVIL, note=EVIL, host=EVIL,
        limits=(Limit(EVIL, EVIL),),
    )  # fmt: skip
    texts = {field.name: EVIL for field in dataclasses.fields(FAILURE)}
    tests = dataclasses.replace(
        fail(dataclasses.replace(FAILURE, **texts)), stopped=EVIL, left=(EVIL,),
        operators=(dataclasses.replace(TESTS.operators[0], name=EVIL),),
        unsupported=(dataclasses.replace(REASON, text=EVIL),),
    )  # fmt: skip
    kernels = (dataclasses.replace(COPIED, name=EVIL, sizes=EVIL),
               dataclasses.replace(COPIED, problem=EVIL))  # fmt: skip
    for answers in (Answers((EVIL,), "", 0.0), Answers((), EVIL, 0.0)):
        speeds = dataclasses.replace(SPEEDS, kernels=kernels, clock=EVIL)
        page = write_page(make_record(machine, answers, tests, speeds, dmlc=EVIL, made=EVIL))
        found = read(page)
        assert "<script" not in page
        assert page.count("</style>") == 1
        assert not any("onload" in attributes for _, attributes in found.tags)
        assert EVIL in found.text
