"""The command line is one thing: rules that every command keeps, and the few that have a reason not to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import lamina
from lamina.cli import asking
from lamina.cli.reaching import RESP, WORKQ, endpoint_of
from lamina.cli.tree import COMMANDS, SECTIONS, load
from lamina.cli.tree import lamina as tree
from lamina.errors import BadOption

LOSES = frozenset(
    {
        "backup prune",
        "jobs delete",
        "queues purge",
        "store gc",
        "store repair",
        "topics delete",
        "user remove",
    }
)
"""What they take away does not come back: they have --dry-run and --yes."""
CHANGES = frozenset(
    {
        "jobs redrive",
        "log consumers",
        "log repair",
        "pipeline clean",
        "pipeline compact",
        "pipeline dump",
        "queues migrate",
        "queues move",
        "restore",
        "store compact",
        "store remove",
        "store restore",
        "topics reset",
    }
)
"""They change much at once, but nothing that counts is lost: they have --dry-run."""
ASKS_ONLY = {"jobs clean": "what would go is counted by pipeline clean --dry-run; it asks, and has --yes"}
WORDS_OF_LOSS = {"clean", "compact", "delete", "gc", "migrate", "move", "prune", "purge", "remove", "repair", "reset"}
"""A command that is called so is in one of the lists above."""
NO_JSON = {
    "completion": "prints a script for a shell",
    "config example": "prints a file",
    "serve": "goes on until it is stopped; its log has a format of its own",
    "workq-server": "goes on until it is stopped; its flags are those of another program",
}
ASKS_A_SERVER = {
    "jobs": "all",
    "topics": "all",
    "queues dump": "the others read the files beside a server, or need the folder for themselves",
    "top": "all",
    "worker": "all",
}
TAKES_A_FOLDER_BY_PLACE = {"backup", "log", "restore", "store"}
"""DIR, DATA or BACKUP as the first word: they work on any folder of that kind. Everybody else has --data."""
NO_FOLDER = {"bench", "completion", "demo", "health", "top", "worker", "workq-server", "config example"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every verb, by the words behind ``lamina``."""
    for name in COMMANDS:
        command = load(name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {verb}", each) for verb, each in command.commands.items())
        else:
            yield name, command


ALL = dict(commands())


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def helps() -> Iterator[tuple[str, click.Command]]:
    yield from ALL.items()
    yield from ((name, load(name)) for name in COMMANDS)


def test_every_command_speaks_json_but_those_that_have_nothing_to_say() -> None:
    assert {name for name, command in ALL.items() if "--json" not in options(command)} == NO_JSON.keys()


def test_what_takes_something_away_says_so_first() -> None:
    for name in LOSES:
        assert {"--dry-run", "--yes"} <= options(ALL[name]), name
    for name in CHANGES:
        assert "--dry-run" in options(ALL[name]), name
    for name in ASKS_ONLY:
        assert "--yes" in options(ALL[name]), name
    asked = {name for name, command in ALL.items() if options(command) & {"--dry-run", "--yes"}}
    assert asked == LOSES | CHANGES | ASKS_ONLY.keys(), "a new one is named above, with what it does"


def test_no_command_with_the_name_of_a_loss_is_forgotten() -> None:
    named = {name for name in ALL if name.split()[-1] in WORDS_OF_LOSS}
    assert named <= LOSES | CHANGES | ASKS_ONLY.keys()


def test_the_two_options_are_the_same_everywhere() -> None:
    """But in log repair, which shows what it would do unless it is told to do it."""
    for name in sorted((LOSES | CHANGES) - {"log repair", "pipeline clean", "restore"}):
        (found,) = [each for each in ALL[name].params if "--dry-run" in each.opts]
        assert isinstance(found, click.Option)
        assert found.help == "Say what would be done, and change nothing.", name


@pytest.mark.parametrize(
    "name", sorted(name for name in ALL if name in ASKS_A_SERVER or name.split()[0] in ASKS_A_SERVER)
)
def test_every_command_that_asks_a_server_can_log_in_to_it(name: str) -> None:
    found = options(ALL[name])
    assert {"--server", "--url"} <= found
    if name != "worker":  # which has an application that knows; a url has the user, LAMINA_TOKEN the token
        assert {"--user", "--token", "--password", "--ca"} <= found


def test_nobody_else_asks_a_server() -> None:
    for name, command in ALL.items():
        if name not in ASKS_A_SERVER and name.split()[0] not in ASKS_A_SERVER and name != "health":
            assert not {"--server", "--url", "--token"} & options(command), name


def test_a_data_folder_is_given_in_one_way_in_each_family() -> None:
    for name, command in ALL.items():
        if name in NO_FOLDER or name.split()[0] in TAKES_A_FOLDER_BY_PLACE:
            assert "--data" not in options(command), name
        else:
            assert "--data" in options(command), name


def test_every_command_and_option_says_what_it_is_for() -> None:
    for name, command in helps():
        assert command.help and command.help.strip().endswith((".", ":", "`", '"')), name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"


def test_a_group_says_what_its_verbs_do_without_cutting_words_off() -> None:
    for name in COMMANDS:
        command = load(name)
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, terminal_width=80)
            shown = command.get_help(context)
            assert "..." not in shown.replace("NAME...", "").replace("[ARGS]...", ""), shown
            assert len(shown.splitlines()) <= 32, f"{name}: {len(shown.splitlines())} lines"


def test_the_first_page_shows_every_command_once_and_fits_a_screen() -> None:
    listed = [name for section in SECTIONS.values() for name in section]
    assert sorted(listed) == sorted(COMMANDS)
    shown = CliRunner().invoke(tree, ["--help"]).output
    assert len(shown.splitlines()) <= 48 and "..." not in shown.replace("[ARGS]...", "")
    assert all(re.search(rf"^  {name} ", shown, re.MULTILINE) for name in COMMANDS)


def test_every_exit_code_is_documented() -> None:
    import lamina.cli.main as main

    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    codes = {value for name, value in vars(main).items() if name.startswith("EXIT_")}
    assert codes == {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} - {0}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_verbs_and_options(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_LAMINA_COMPLETE" in CliRunner().invoke(tree, ["completion", shell]).output
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    completing = kind(tree, {}, "lamina", "_LAMINA_COMPLETE")
    assert {each.value for each in completing.get_completions([], "to")} == {"top", "topics"}
    assert {each.value for each in completing.get_completions(["jobs"], "re")} == {"redrive", "resume"}
    assert "--dry-run" in {each.value for each in completing.get_completions(["topics", "delete", "x"], "--d")}


# -- asking ----------------------------------------------------------------------------------------------------------


def test_where_nobody_can_be_asked_it_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as data:
        data.topic("orders").publish(b"tea")
        id = data.jobs.add("mail", b"")
    for words in (["topics", "delete", "orders"], ["jobs", "delete", id], ["jobs", "clean"]):
        done = CliRunner().invoke(tree, [*words, "--data", str(tmp_path)])
        assert isinstance(done.exception, BadOption) and "--yes" in done.exception.hint, words
    for words in (["topics", "delete", "orders"], ["jobs", "delete", id]):
        done = CliRunner().invoke(tree, [*words, "--dry-run", "--data", str(tmp_path)])
        assert done.exit_code == 0 and "would be deleted" in done.output
    with lamina.open(tmp_path) as data:
        assert data.topics.names() == ["orders"] and data.jobs.show(id).state == "ready"
    for words in (["topics", "delete", "orders"], ["jobs", "delete", id]):
        assert CliRunner().invoke(tree, [*words, "--yes", "--data", str(tmp_path)]).exit_code == 0
    with lamina.open(tmp_path) as data:
        assert data.topics.names() == [] and [queue.ready for queue in data.jobs.queues()] in ([], [0])


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_on_a_terminal_it_asks(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal())
    asked = []

    def confirm(question: str, **more: Any) -> bool:
        asked.append(question)
        return answer == "y"

    monkeypatch.setattr(click, "confirm", confirm)
    if answer == "y":
        asking.confirm("Really?", yes=False)
    else:
        with pytest.raises(click.Abort):
            asking.confirm("Really?", yes=False)
    assert asked == ["Really?"]
    asking.confirm("Really?", yes=True)
    assert len(asked) == 1


class _Terminal:
    def isatty(self) -> bool:
        return True


# -- where a server is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "surroundings", "shown"),
    [
        ([], {}, "127.0.0.1:6380 None None plain"),
        (["--server", "db1:7000", "--user", "ann", "--token", "t"], {}, "db1:7000 ann t plain"),
        (["--server", "unix:/run/x"], {"LAMINA_PASSWORD": "p"}, "unix:/run/x None p plain"),
        (["--url", "lamina://ann:t@db1?workq=1"], {"LAMINA_TOKEN": "other"}, "db1:6380 ann t plain"),
        (["--url", "laminas://ann@db1"], {"LAMINA_TOKEN": "t"}, "db1:6380 ann t safe"),
        ([], {"LAMINA_URL": "lamina://bob@db2:7", "LAMINA_TOKEN": "t"}, "db2:7 bob t plain"),
        (["--server", "db3:9", "--token", "mine"], {"LAMINA_TOKEN": "t", "LAMINA_URL": "x"}, "db3:9 None mine plain"),
        (["--password", "p"], {"LAMINA_URL": "lamina://h"}, "h:6380 None p plain"),
        (["--user", "ann"], {}, "the token of ann is missing"),
        (["--server", "nonsense"], {}, "'nonsense' is no address"),
        (["--url", "http://h"], {}, "http://h is no address of a server"),
        (["--ca", "/nowhere.pem"], {}, "--ca /nowhere.pem"),
    ],
)
def test_who_and_where(
    words: list[str], surroundings: dict[str, str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAMINA_URL", "LAMINA_TOKEN", "LAMINA_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    from lamina.cli.reaching import reaches_a_server

    @click.command()
    @reaches_a_server(RESP)
    def show(server: str | None) -> None:
        try:
            found = endpoint_of(server, RESP)
            click.echo(f"{found} {found.user} {found.token} {'safe' if found.tls else 'plain'}")
        except BadOption as error:
            click.echo(error.message)

    assert CliRunner().invoke(show, words).output.strip().startswith(shown)


def test_jobs_of_a_url_are_behind_its_workq_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LAMINA_URL", "lamina://db1:7?workq=8")
    assert (str(endpoint_of(None, WORKQ)), str(endpoint_of(None, RESP))) == ("db1:8", "db1:7")


# -- what was typed wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job", "ls"], "did you mean 'jobs'?"),
        (["jobs", "lis"], "id you mean 'ls'?"),
        (["jobs", "show", "--json"], '{"error":{"code":"bad_option","message":"Missing argument'),
        (["jobs", "ls", "--bogus", "--json"], '{"error":{"code":"bad_option","message":"No such option'),
    ],
)
def test_wrong_usage_is_told_to_people_and_to_programs(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lamina.cli.main import _run

    monkeypatch.setattr("sys.argv", ["lamina", *words])
    assert _run() == 2
    out, err = capsys.readouterr()
    assert said in out + err and "Usage: lamina" in err
    assert bool(out) == ("--json" in words)
