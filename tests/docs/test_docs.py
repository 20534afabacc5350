"""What is written is so: examples run, hex is right, every setting, command, error and promise is there."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import pytest
import redis

from contract.ways import AllDoors
from integration.lamina_server import LaminaServer
from lamina import errors
from lamina.engines.jobs import codec
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.engines.topics import entries as topic_entries
from lamina.engines.topics import ids
from lamina.log import LogOptions, frame
from lamina.log.formats import ALL, JOBS, PLAIN, TOPIC
from lamina.log.index import Index, State
from lamina.server.resp.commands import COMMANDS
from lamina.server.resp.table import FACTS
from lamina.units import MIB, parse_time

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


@pytest.mark.parametrize(
    "path", ["README.md", "docs/tutorial-log.md", "docs/how-to/test-crashes.md", "docs/how-to/run-a-store.md"]
)
def test_the_python_of_a_document_runs(path: str, tmp_path: Path) -> None:
    script = "\n".join(code_blocks(path, "python"))
    assert script
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_python_of_the_tutorial_does_as_it_says(tmp_path: Path) -> None:
    """Its first three steps; tests/spark has the last one."""
    inside, typed, remote, put, _ = code_blocks("docs/tutorial.md", "python")
    ((name, tasks),) = re.findall(r"```python file=(\S+)\n(.*?)```", text("docs/tutorial.md"), re.DOTALL)

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run("-c", inside + typed)
    assert "[b'tea'] b'41'" in said and "Order(item='coffee', count=1)" in said
    with AllDoors(tmp_path / "shop") as server:

        def here(script: str) -> str:
            return script.replace("lamina://127.0.0.1", server.url)

        (tmp_path / name).write_text(here(tasks))
        order = "import lamina\n" + typed.split("orders = ")[0]
        said = run("-c", here(order + remote))
        assert said.splitlines() == [
            f"pack Order(item={item!r}, count={n})" for item, n in (("tea", 2), ("coffee", 1), ("biscuits", 3))
        ]
        worker = [sys.executable, "-m", "lamina", "worker", f"{name.removesuffix('.py')}:lm", "--concurrency", "4"]
        with subprocess.Popen(worker, cwd=tmp_path, stderr=subprocess.DEVNULL) as working:
            try:
                assert run("-c", put) == "1 x cake: 4.00\n"
            finally:
                working.terminate()
        assert working.returncode == 0


def test_the_python_of_the_page_about_a_topic_server_does_as_it_says(tmp_path: Path) -> None:
    publish, subscribe, take_over = code_blocks("docs/how-to/run-a-topic-server.md", "python")
    take_over = subscribe.partition("after = ")[0].replace('"ann"', '"bob"') + take_over.replace("60_000", "0")
    with LaminaServer(tmp_path / "data") as server, redis.Redis(port=server.port) as client:

        def run(script: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-u", "-c", script.replace("port=6380", f"port={server.port}")]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        with run(publish) as publisher:
            assert publisher.wait() == 0
        assert client.xlen("orders") == 1001
        with run(subscribe) as subscriber:
            assert subscriber.stdout is not None
            lines = list(islice(subscriber.stdout, 1001))  # for ever: it waits for more
            subscriber.kill()
        assert all(line.startswith("sending {") for line in lines)
        assert len(lines) == 1001
        client.xadd("orders", {"item": "coffee"})
        client.xreadgroup("mailers", "carl", {"orders": ">"})
        with run(take_over) as other:
            assert other.wait() == 0
        assert client.xpending("orders", "mailers")["pending"] == 0


def test_the_example_of_the_readme_has_twenty_lines() -> None:
    for example in code_blocks("README.md", "python"):
        assert len([line for line in example.splitlines() if line.strip()]) <= 20


def test_the_readme_names_the_two_commands() -> None:
    assert "make run" in text("README.md")
    assert "make test" in text("README.md")


def test_the_worked_examples_of_the_job_records_are_right() -> None:
    job, note, large, fence = hex_blocks("docs/formats/jobs.md")
    id = bytes.fromhex("00000001000040008000000000000001")
    created = 1794724702 * 10**9 + 0x2EC8C92B
    assert job == codec.encode_job(id, "a1", 60, 2592000000, 0, 0, 0, b"twice, pending", None, created)
    assert note == codec.encode_note(codec.RETRY, id, 500, b"busy")
    assert codec.encode_note(codec.RETRY, id, 500, bytes(1 << 20)).startswith(large)
    assert fence == codec.FENCE_RECORD


def test_the_worked_example_of_a_topic_is_right() -> None:
    (entry,) = hex_blocks("docs/formats/topics.md")
    assert entry == topic_entries.encode(ids.make(1700000000123, 7), [b"temp", b"21.5"])


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
    for setting in dataclasses.fields(QueueOptions):
        shown = f"`{setting.default}`" if isinstance(setting.default, str) else setting.default
        assert f"| `{setting.name}` | {shown} |" in table
    for option in dataclasses.fields(StoreOptions):
        assert f"| `{option.name}` | {option.default} |" in table


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
    """Each option in the part of the page that is about its command."""
    page = text("docs/reference/cli.md")
    for name, command in _cli_commands():
        if isinstance(command, click.Group):
            continue
        parts = [part for part in re.split(r"\n(?=##)", page) if re.match(rf"#+ lamina {name}\b(?!-)", part)]
        assert parts, f"lamina {name} has no part"
        for parameter in command.params:
            options = [option for option in parameter.opts if option.startswith("-")]
            if options and not parameter.expose_value:  # of every command that asks a server
                assert _has_word(page.split("\n## A running server\n")[1].split("\n## ")[0], options[0])
            elif options:
                assert any(_has_word(part, option) for part in parts for option in options), f"{name} {options}"


def test_every_command_that_is_documented_is_there() -> None:
    page = text("docs/reference/cli.md")
    named = set(re.findall(r"^#+ lamina ((?:[a-z-]+)(?: [a-z]+)?)\b", page, re.MULTILINE))
    assert named == {name for name, _ in _cli_commands()}


def _cli_commands() -> Iterator[tuple[str, click.Command]]:
    """By the words behind ``lamina``; families of commands, and what is in them."""
    from lamina.cli.tree import COMMANDS, load

    for name in COMMANDS:
        command = load(name)
        assert command.name == name
        yield str(command.name), command
        if isinstance(command, click.Group):
            yield from ((f"{command.name} {name}", each) for name, each in command.commands.items())


def _has_word(part: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", part) is not None


def test_every_option_of_spark_is_documented() -> None:
    from lamina.pipeline.options import READING, STREAMING
    from lamina.pipeline.sinking.sink_options import WRITING

    page = text("docs/reference/spark.md")
    heads = ("## Options of a read", "## Options of a stream", "## Options of a write")
    for head, options in zip(heads, (READING, STREAMING, WRITING), strict=True):
        part = page.split(head)[1].split("\n## ")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == set(options)


def test_every_option_of_the_server_is_documented_with_its_default() -> None:
    from lamina.cli.serve import serve

    rows = dict(re.findall(r"^\| `(--[a-z-]+)` \| (.*?) \|", text("docs/reference/options.md"), re.MULTILINE))
    assert set(rows) == {option for parameter in serve.params for option in parameter.opts}
    for parameter in serve.params:
        if isinstance(parameter.default, int) and not isinstance(parameter.default, bool):
            shown = str(parameter.default), f"{parameter.default // MIB} MiB"
            assert rows[parameter.opts[0]] in shown, parameter.opts


def test_every_command_of_the_resp_door_is_documented_and_no_other() -> None:
    known = {
        each.name for facts in FACTS.values() for each in (facts, *facts.subcommands.values()) if each.name in COMMANDS
    }
    assert known == set(COMMANDS)
    rows = re.findall(r"^\| (`[A-Z].*?) (?<!\\)\| ", text("docs/reference/resp.md"), re.MULTILINE)
    named = [_resp_name(words) for row in rows for words in re.findall(r"`([A-Z][A-Z.-]+(?: [^`]*)?)`", row)]
    assert set(named) == known


def _resp_name(words: str) -> bytes:
    """The name of the command that ``words`` are an example of: ``xgroup|create``."""
    name, *more = words.lower().encode().split()
    assert name in FACTS, words
    below = more[0] if more and words.split()[1].isupper() else b""
    return b"%b|%b" % (name, below) if below and FACTS[name].subcommands else name


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
