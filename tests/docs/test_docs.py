"""What is written is so: examples run, hex is right, every setting, command, error and promise is there."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lamina import errors
from lamina.engines.jobs import codec
from lamina.engines.topics import codec as topic_codec
from lamina.engines.topics import ids
from lamina.log import LogOptions, frame
from lamina.log.formats import ALL, JOBS, PLAIN, TOPIC
from lamina.log.index import Index, State
from lamina.units import parse_time

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MOMENT = parse_time("2026-11-15T06:17:00.123456789Z")


def text(path: str) -> str:
    return (ROOT / path).read_text()


def code_blocks(path: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text(path), re.DOTALL)


def hex_blocks(path: str) -> list[bytes]:
    """Blocks of hex, comments behind three blanks left out."""
    found = []
    for block in re.findall(r"```\n(.*?)```", text(path), re.DOTALL):
        digits = "".join(re.split(r" {3,}", line)[0].replace(" ", "") for line in block.splitlines())
        if re.fullmatch(r"(?:[0-9a-f]{2})+", digits):
            found.append(bytes.fromhex(digits))
    return found


@pytest.mark.parametrize("path", ["README.md", "docs/tutorial.md", "docs/how-to/test-crashes.md"])
def test_the_python_of_a_document_runs(path: str, tmp_path: Path) -> None:
    script = "\n".join(code_blocks(path, "python"))
    assert script
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_example_of_the_readme_has_twenty_lines() -> None:
    for example in code_blocks("README.md", "python"):
        assert len([line for line in example.splitlines() if line.strip()]) <= 20


def test_the_readme_names_the_two_commands() -> None:
    assert "make run" in text("README.md")
    assert "make test" in text("README.md")


def test_the_worked_examples_of_the_job_records_are_right() -> None:
    job, note = hex_blocks("docs/formats/jobs.md")
    id = bytes.fromhex("00000001000040008000000000000001")
    created = 1794724702 * 10**9 + 0x2EC8C92B
    assert job == codec.encode_job(id, "a1", 60, 2592000000, 0, 0, 0, b"twice, pending", None, created)
    assert note == codec.encode_note(codec.RETRY, id, 500, b"busy")


def test_the_worked_example_of_a_topic_is_right() -> None:
    (entry,) = hex_blocks("docs/formats/topics.md")
    assert entry == topic_codec.encode_entry(ids.make(1700000000123, 7), [b"temp", b"21.5"])


def test_the_worked_example_of_the_frame_is_right() -> None:
    (example,) = hex_blocks("docs/formats/frame.md")
    assert example == PLAIN.header + frame.encode(MOMENT, b"hello")


def test_the_worked_examples_of_marks_and_index_are_right() -> None:
    marks, index = hex_blocks("docs/formats/files.md")
    wanted = [frame.encode(MOMENT + 9, format.watermark(MOMENT)) for format in (JOBS, TOPIC)]
    assert marks == b"".join(wanted)
    made = Index()
    made.note(MOMENT, 8)
    made.grow(33, 1, MOMENT)
    made.last_data, made.state = MOMENT, State.CLEAN
    assert index == made.encode()


def test_every_kind_of_file_is_documented() -> None:
    for format in ALL:
        assert f"`{format.magic.decode()}` | {format.version}" in text("docs/formats/files.md")


def test_every_setting_is_documented_with_its_default() -> None:
    table = text("docs/reference/options.md")
    for setting in dataclasses.fields(LogOptions):
        assert f"| `{setting.name}` |" in table


def test_every_environment_variable_is_documented() -> None:
    used = set()
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            used |= set(re.findall(r"\bLAMINA_[A-Z]+\b", path.read_text()))
    for name in used - {"LAMINA_CPU"}:
        assert f"`{name}" in text("docs/reference/options.md")


def test_every_error_is_documented_with_its_code_and_whether_to_try_again() -> None:
    rows = {
        row.split("|")[1].strip(): row for row in text("docs/reference/errors.md").splitlines() if row.count("|") > 5
    }
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LaminaError)]
    assert len({kind.code for kind in kinds}) == len(kinds), "two errors share a code"
    for kind in kinds:
        row = rows[f"`{kind.code}`"]
        assert f"`{kind.__name__}`" in row
        assert ("| yes |" in row) == kind.retryable
        assert kind.__name__ in (errors.__doc__ or ""), "not in the tree at the head of errors.py"


def test_every_command_and_option_is_documented() -> None:
    from lamina.cli.demo import demo
    from lamina.cli.log import log

    page = text("docs/reference/cli.md")
    for name, command in [("demo", demo), *((f"log {name}", each) for name, each in log.commands.items())]:
        assert f"lamina {name}" in page
        for parameter in command.params:
            if parameter.opts[0].startswith("-"):
                assert any(option in page for option in parameter.opts), f"{name} {parameter.opts}"


def test_every_promise_names_a_test_that_exists() -> None:
    named = re.findall(r"tests/[\w/]+\.py(?:::\w+)*", text("docs/promises.md"))
    assert len(named) > 15
    for each in named:
        path, *parts = each.split("::")
        source = text(path)
        for part in parts:
            assert re.search(rf"(?:def|class) {part}\b", source), each


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "bench" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_every_decision_is_in_the_list() -> None:
    listed = text("docs/decisions/README.md")
    for page in (DOCS / "decisions").glob("0*.md"):
        assert page.name in listed


def test_the_version_is_the_same_everywhere() -> None:
    import lamina

    environment = {**os.environ, "PYTHONWARNINGS": ""}
    shown = subprocess.run(
        [sys.executable, "-m", "lamina", "--version"], capture_output=True, text=True, check=True, env=environment
    )
    assert lamina.__version__ in shown.stdout
