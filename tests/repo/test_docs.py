"""What the documents say is what the program does."""

import functools
import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest

from runner.config import options
from runner.lifecycle import REASONS, TRANSITIONS
from runner.store.first_start import empty_queue
from runner.terminal.cli import SECTIONS
from tests import nursery
from tests.progress_fixtures import fixtures
from tests.repo import env_example

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@functools.cache
def help_of(*words):
    with tempfile.TemporaryFile() as shown, open(os.devnull) as nothing:
        called = nursery.start([*words, "--help"], os.environ, str(ROOT), nothing, shown, shown)
        assert called.wait(100) == 0
        shown.seek(0)
        return shown.read().decode()


# in a process of its own: what tests there are is asked for without running any
OVERVIEW = subprocess.run([sys.executable, str(ROOT / "nightshift.py"), "--help"], capture_output=True, check=True)
COMMANDS = re.findall(r"^  ([a-z][a-z-]*)  ", OVERVIEW.stdout.decode(), re.MULTILINE)


def test_every_folder_of_the_program_is_on_the_map():
    shown = (ROOT / "docs" / "architecture.md").read_text().partition("## Where things are")[2]
    there = {
        f"{one.parent.parent.name}/{one.parent.name}/"
        for top in ("runner", "bot")
        for one in ROOT.glob(f"{top}/*/*.py")
    }
    assert set(re.findall(r"`((?:runner|bot)/[a-z_]+/)`", shown)) == there


def test_env_example_lists_every_setting():
    assert env_example.PATH.read_text() == env_example.text(), "run: python -m tests.repo.env_example"


def test_every_command_is_in_the_readme_and_in_the_help():
    expected = "submit ls show log kill rerun wait shell gpus pause resume drain prune ws doctor up down runner demo"
    expected += " bot pair audit"
    assert set(expected.split()) <= set(COMMANDS)
    readme = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "sim-load"])
def test_every_command_explains_itself(name):
    assert "Usage: nightshift" in help_of(name)


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), *(("ws", name) for name in ("add", "edit"))])
def test_every_help_fits_80_columns(words):
    assert [line for line in help_of(*words).splitlines() if len(line) > 80] == []


def test_every_option_of_every_command_is_explained():
    entries = [(name, entry.load()) for section in SECTIONS.values() for name, entry in section.items()]
    commands = [command for _, command in entries if isinstance(command, click.Command)]
    groups = [command for command in commands if isinstance(command, click.Group)]
    commands += [group.get_command(None, name) for group in groups for name in group.list_commands(None)]
    flags = [option for command in commands for option in command.params if isinstance(option, click.Option)]
    assert [option.opts for option in flags if not option.help] == []


@pytest.mark.parametrize("name", ["submit", "sweep", "feed", "edit"])
def test_the_help_lists_every_flag_that_is_read(name):
    module = importlib.import_module(f"runner.terminal.{name}")
    flags = {flag for option in (*options.OPTIONS, *module.OWN) for flag in option.flags}
    listed = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", "\n".join(re.findall(r"^  -.*", help_of(name), re.MULTILINE))))
    assert flags - listed == ({"--on"} if name == "feed" else set())


def test_the_help_of_submit_lists_every_option():
    shown = help_of("submit")
    for flags, explanation in options.help_rows():
        assert flags in shown
        assert explanation in shown


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_commands_and_flagsin_the_documents_exist(path):
    """Every `nightshift x --option` that a document shows is one the command knows."""
    unknown = []
    for line in re.findall(r"nightshift ((?:--env-file \S+ )?[a-z-]+(?: [^`\n|&;]*)?)", path.read_text()):
        # without the options of the programs that are run: behind -- or watch's -x, or in quotes
        words = re.sub(r'"[^"]*"', "", re.split(r" -- | -x ", line)[0]).split()
        command = next((word for word in words if not word.startswith("-")), "")
        if command not in COMMANDS:
            continue
        shown = help_of(command) if command != "ws" else help_of("ws", "add") + help_of("ws")
        unknown += [f"{command} {word}" for word in words if re.fullmatch(r"--?[a-z-]+", word) and word not in shown]
    assert unknown == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_settings_in_the_documents_exist(path):
    known = {f"NIGHTSHIFT_{name.upper()}" for name in env_example.FIELDS} | {"NIGHTSHIFT_TOKEN_FD"}
    names = ("JOB_ID", "RUN_ID", "BATCH_SIZE", "PROBE", "SCRATCH", "SUBMIT_DIR", "JOB_CPUS", "JOB_RAM_MIB")
    in_jobs = {f"NIGHTSHIFT_{name}" for name in names}
    assert set(re.findall(r"NIGHTSHIFT_[A-Z_]+", path.read_text())) <= known | in_jobs


@pytest.mark.parametrize("path", [*DOCS, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_files_that_the_documents_name_exist(path):
    named = re.findall(r"`((?:bot|runner|tests|docs|benchmarks|examples)/[a-z_./0-9-]+)`", path.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_links_lead_somewhere():
    for path in DOCS:
        for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_tables_and_columns_in_the_glossary_exist():
    text = (ROOT / "docs" / "glossary.md").read_text()
    queue = empty_queue()
    tables = {row[0] for row in queue.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    columns = {row[1] for table in tables for row in queue.execute(f"PRAGMA table_xinfo({table})")}
    queue.close()
    assert set(re.findall(r"table `(\w+)`", text)) <= tables
    assert set(re.findall(r"column `(\w+)`", text)) <= columns


def test_the_diagram_of_states_is_the_table_of_transitions():
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawn = set(re.findall(r"^    ([A-Z]+) --> ([A-Z]+)", text, re.MULTILINE))
    assert drawn == {(old.value, new.value) for old, news in TRANSITIONS.items() for new in news}


def test_the_states_and_reasons_are_documented():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for state, reasons in REASONS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {state.value} "))
        assert {reason.value for reason in reasons} <= set(re.findall(r"[A-Z]{3,}", row))


def test_the_table_of_progress_formats_is_that_of_the_example_outputs():
    rows = re.findall(
        r"^\| (.+?) \| `` (.+) `` \| (yes|no) \| (.+) \|$", (ROOT / "docs" / "progress.md").read_text(), re.MULTILINE
    )
    examples: dict[str, bool] = {}
    for fixture in fixtures():
        name = fixture.expected["format"]
        examples[name] = examples.get(name, False) or fixture.expected["total"] is not None
    assert {name: ends == "yes" for name, _, ends, _ in rows} == examples
    sources = {fixture.expected["source"].partition(";")[0] for fixture in fixtures()}
    assert {source for *_, source in rows} <= sources
