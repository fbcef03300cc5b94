"""Pages of an output: they join without a gap, show no secret, and are read in bounded pieces."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.secrets.redact import Redactor
from bot.text import log_pages
from bot.text.html import units
from bot.text.log_pages import PAGE_LINES, PAGE_UNITS, find, page_after, page_before
from runner import rundir
from runner.supervisor.log_reader import Log
from runner.supervisor.output import OutputWriter
from tests.jobs import an_exit

NOTHING = Redactor([])
KEY = (
    "-----BEGIN PRIVATE KEY-----\n" + "\n".join(f"MIIkey{n:058d}" for n in range(120)) + "\n-----END PRIVATE KEY-----\n"
)


def written(folder, data, limit=1 << 30, tail=1 << 20):
    output = OutputWriter(str(folder), limit, tail)
    output.append(data)
    (folder / rundir.EXIT).write_text(json.dumps(an_exit(output_bytes=output.bytes).to_json()))
    return Log(str(folder))


def older_pages(output, redactor=NOTHING):
    page = page_before(output, redactor)
    pages = [page]
    while page.has_older:
        page = page_before(output, redactor, page.begin)
        pages.append(page)
    return pages[::-1]


def newer_pages(output, redactor=NOTHING):
    page = page_after(output, redactor, 0)
    pages = [page]
    while page.has_newer:
        page = page_after(output, redactor, page.end)
        pages.append(page)
    return pages


@pytest.mark.parametrize("pages", [older_pages, newer_pages])
def test_the_pages_join(tmp_path, pages):
    lines = [f"step {n} loss {n / 7:.4f}" for n in range(1000)]
    output = written(tmp_path, "\n".join(lines).encode())
    turned = pages(output)
    assert "\n".join(page.text for page in turned).split("\n") == lines
    assert len(turned) == -(-1000 // PAGE_LINES)
    assert all(a.end == b.begin for a, b in pairwise(turned))


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=60), back=st.booleans())
def test_no_line_is_lost_or_shown_twice_whatever_its_length(tmp_path_factory, sizes, back):
    lines = [f"<{n} {'x' * size} {n}>" for n, size in enumerate(sizes)]
    output = written(tmp_path_factory.mktemp("log"), "\n".join(lines).encode())
    turned = older_pages(output) if back else newer_pages(output)
    shown = "\n".join(page.text for page in turned).split("\n")
    assert [(line.split(" ")[0], line.split(" ")[-1]) for line in shown] == [
        (f"<{n}", f"{n}>") for n in range(len(sizes))
    ]
    assert all(units(page.text) <= max(PAGE_UNITS, log_pages.LONGEST_LINE) for page in turned)


def test_a_progress_bar_is_one_line_however_long_it_is(tmp_path):
    bar = "".join(f"\r{n}%" for n in range(20_000))
    output = written(tmp_path, f"first\n{bar}\nlast\n".encode())
    newest = page_before(output, NOTHING)
    assert newest.text == "first\n19999%\nlast"
    assert not newest.has_older


def test_lines_that_repeat_are_shown_once(tmp_path):
    output = written(tmp_path, b"one\n" + b"loss is nan\n" * 37 + b"two\n\n\nthree\n\n")
    assert page_before(output, NOTHING).text == "one\nloss is nan … ×37\ntwo\n\nthree"
    assert page_before(output, NOTHING, most=2).text == "three"


def test_what_was_not_kept_is_passed_over(tmp_path):
    data = b"".join(b"line %05d\n" % n for n in range(10_000))
    output = written(tmp_path, data, limit=5_000, tail=3_000)
    turned = older_pages(output)
    text = "\n".join(page.text for page in turned)
    assert text.startswith("line 00000\n")
    assert text.endswith("line 09999")
    assert [page.text for page in newer_pages(output)][-1].endswith("line 09999")


@pytest.mark.parametrize("pages", [older_pages, newer_pages])
def test_no_page_shows_a_part_of_a_secret(tmp_path, pages):
    secret = "hunter2-" + "q" * 200
    filler = [f"step {n}" for n in range(29)]
    text = "\n".join([*filler, KEY, *filler, f"token is {secret}", *filler * 3])
    turned = pages(written(tmp_path, text.encode()), Redactor([secret]))
    shown = "\n".join(page.text for page in turned)
    assert "MIIkey" not in shown
    assert "qqqq" not in shown
    assert shown.count("step 7") == 5


def test_a_word_is_found_in_capitals_or_not_newest_first_by_pages(tmp_path):
    lines = [f"{n} Warning: odd" if n % 100 == 0 else f"{n} " + "." * 400 for n in range(5_000)]
    output = written(tmp_path, "\n".join(lines).encode())
    newest = find(output, NOTHING, "wARNING")
    assert newest.text.split("\n") == [lines[n] for n in range(3_000, 5_000, 100)]
    assert newest.has_older
    older = find(output, NOTHING, "warning", newest.begin)
    assert older.text.split("\n") == [lines[n] for n in range(1_000, 3_000, 100)]
    assert find(output, NOTHING, "nowhere").text == ""


def test_a_secret_cannot_be_guessed_by_searching_for_it(tmp_path):
    output = written(tmp_path, b"a\nkey hunter2hunter2 given\nb\n")
    assert find(output, NOTHING, "hunter2").text
    assert find(output, Redactor(["hunter2hunter2"]), "hunter2").text == ""


def test_a_search_reads_only_so_much(tmp_path, monkeypatch):
    monkeypatch.setattr(log_pages, "SEARCHED_BYTES", 1 << 20)
    output = written(tmp_path, b"needle\n" + (b"." * 99 + b"\n") * 30_000)
    page = find(output, NOTHING, "needle")
    assert page.text == ""
    assert page.has_older
    while page.has_older:
        page = find(output, NOTHING, "needle", page.begin)
    assert page.text == "needle"


def test_an_empty_output_is_one_empty_page(tmp_path):
    page = page_before(Log(str(tmp_path)), NOTHING)
    assert page == ("", 0, 0, False, 0)
    assert page_after(Log(str(tmp_path)), NOTHING, 0) == page
    assert find(Log(str(tmp_path)), NOTHING, "x") == page
