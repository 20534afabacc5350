"""Settings: where each value is from, who wins, and what is said of values that cannot be."""

from __future__ import annotations

import dataclasses
import errno
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from lamina.cli import tree
from lamina.cli.main import main
from lamina.config import SETTINGS, Config, Given, load
from lamina.config.showing import as_dict, example, shown_value
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption, DiskError
from lamina.log.options import LogOptions

NOTHING: Mapping[str, str] = {}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def of(text: str, *, environment: Mapping[str, str] = NOTHING, flags: tuple[Given, ...] = ()) -> Config:
    """What holds with this ``lamina.toml`` in the current folder."""
    Path("lamina.toml").write_text(text)
    return load(environment=environment, flags=flags)


def only_problem(text: str, *, environment: Mapping[str, str] = NOTHING, flags: tuple[Given, ...] = ()) -> str:
    found = of(text, environment=environment, flags=flags)
    (problem,) = found.problems
    assert "\n" not in problem
    return problem


class TestWithoutAnyConfiguration:
    def test_everything_has_a_default_and_nothing_is_wrong(self) -> None:
        found = load(environment=NOTHING)
        assert found.problems == found.warnings == [] and found.file is None
        assert set(found.origins.values()) == {"default"}
        assert found.text("data") == "lamina-data"
        assert [str(found.address(door)) for door in ("workq", "resp", "http")] == [
            "127.0.0.1:9922",
            "127.0.0.1:6380",
            "127.0.0.1:9980",
        ]

    def test_the_options_of_engines_are_their_own_defaults(self) -> None:
        found = load(environment=NOTHING)
        assert found.queue_options() == QueueOptions()
        assert found.store_options() == StoreOptions()
        assert found.log_options("topics") == LogOptions()
        assert found.log_options("jobs") == LogOptions(sync="interval")  # type: ignore[arg-type]

    def test_every_field_of_queues_and_store_is_a_setting_with_a_meaning(self) -> None:
        for section, options in (("queues", QueueOptions), ("store", StoreOptions)):
            for field in dataclasses.fields(options):
                setting = SETTINGS[f"{section}.{field.name}"]
                assert setting.default == field.default and setting.meaning.endswith(".")


class TestWhoWins:
    def test_flags_over_environment_over_file_over_default(self) -> None:
        around = {"LAMINA_JOBS_SYNC": "always", "LAMINA_QUEUES_QUOTA": "20"}
        flags = (Given("queues.quota", "30", "--queue"),)
        found = of('[jobs]\nsync = "os"\nclean_ms = 5\n[queues]\nquota = 10', environment=around, flags=flags)
        assert found.problems == []
        assert (found.text("jobs.sync"), found.number("jobs.clean_ms")) == ("always", 5)
        options = found.queue_options()
        assert options is not None and options.quota == 30
        assert found.origins["jobs.sync"] == "environment LAMINA_JOBS_SYNC"
        assert found.origins["jobs.clean_ms"] == "lamina.toml"
        assert found.origins["queues.quota"] == "flag --queue"
        assert found.origins["topics.sync"] == "default"

    def test_an_empty_variable_is_as_good_as_none(self) -> None:
        assert load(environment={"LAMINA_RESP_LISTEN": ""}).text("resp.listen") == "127.0.0.1:6380"

    def test_sizes_and_times_can_be_written_as_people_write_them(self) -> None:
        found = of('[topics]\nsegment_bytes = "1MiB"\nsegment_age_s = "2h"\n[queues]\nttl_s = "7d"')
        assert found.problems == []
        assert found.log_options("topics") == LogOptions(segment_bytes=1 << 20, segment_age_s=7200)
        options = found.queue_options()
        assert options is not None and options.ttl_s == 7 * 86400

    def test_rules_of_retention_are_kept_in_order_and_those_of_flags_come_first(self) -> None:
        flags = (Given("topics.retain", "b=age:2d", "--retain"), Given("topics.retain", "a=keep", "--retain"))
        found = of('[topics.retain]\n"a" = "age:1d"\n"*" = "bytes:1GiB"', flags=flags)
        assert found.problems == []
        assert found.retain() == ("b=age:2d", "a=keep", "*=bytes:1GiB")

    def test_several_rules_fit_into_one_variable(self) -> None:
        found = load(environment={"LAMINA_TOPICS_RETAIN": "a=age:1d,bytes:1GiB; b=keep"})
        assert found.problems == [] and found.retain() == ("a=age:1d,bytes:1GiB", "b=keep")

    def test_a_path_in_a_file_is_beside_that_file(self, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/lamina.toml").write_text('data = "kept"\n[server]\ntls_cert = "/x.pem"\ntls_key = "y.key"')
        found = load("etc/lamina.toml", environment=NOTHING)
        assert found.text("data") == "etc/kept"
        assert (found.maybe("server.tls_cert"), found.maybe("server.tls_key")) == ("/x.pem", "etc/y.key")


class TestWhichFile:
    def test_the_named_one_then_the_data_folders_then_the_current_folders(self, tmp_path: Path) -> None:
        for number, name in enumerate(("flag.toml", "variable.toml", "data/lamina.toml", "lamina.toml"), 1):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(f"[jobs]\nclean_ms = {number}")
        around = {"LAMINA_CONFIG": "variable.toml", "LAMINA_DATA": "data"}
        assert load("flag.toml", environment=around).number("jobs.clean_ms") == 1
        assert load(environment=around).number("jobs.clean_ms") == 2
        assert load(environment={"LAMINA_DATA": "data"}).number("jobs.clean_ms") == 3
        assert load(environment=NOTHING, flags=[Given("data", "data", "--data")]).number("jobs.clean_ms") == 3
        assert load(environment=NOTHING).number("jobs.clean_ms") == 4

    @pytest.mark.parametrize(("flag", "around"), [("no.toml", {}), (None, {"LAMINA_CONFIG": "no.toml"})])
    def test_one_that_is_named_has_to_be_there(self, flag: str | None, around: Mapping[str, str]) -> None:
        with pytest.raises(BadOption, match=r"no\.toml: there is no such file"):
            load(flag, environment=around)

    def test_one_inside_the_data_folder_cannot_move_it(self, tmp_path: Path) -> None:
        (tmp_path / "lamina-data").mkdir()
        (tmp_path / "lamina-data/lamina.toml").write_text('data = "elsewhere"')
        (problem,) = load(environment=NOTHING).problems
        assert "lamina-data/lamina.toml, line 1: data cannot be set by a file inside the data folder" in problem

    def test_one_that_cannot_be_read_is_an_error_of_the_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(path: Path, mode: str) -> object:
            raise PermissionError(13, "Permission denied")

        Path("lamina.toml").write_text("")
        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(DiskError, match=r"lamina\.toml: cannot read the configuration"):
            load(environment=NOTHING)


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[jobs]\nsynk = 1", "lamina.toml, line 2: [jobs] synk is no setting; did you mean sync?"),
            ("[job]\nsync = 'os'", "lamina.toml, line 1: [job] is no section; did you mean [jobs]?"),
            ("dat = 'x'", "lamina.toml, line 1: dat is no setting; did you mean data?"),
            ("max_connections = 5", "max_connections is no setting; did you mean [server] max_connections?"),
            ("[resp]\npassword = 'x'", "did you mean [server] password or [queues] password?"),
            ("[workq]\nxyz = 1", "[workq] xyz is no setting; there are listen"),
            ("[topics.retian]\na = 'keep'", "line 1: [topics] retian is no setting; did you mean retain?"),
            ("[jobs]\nsync = 'of'", "line 2: [jobs] sync = 'of' cannot be: 'of' is no sync policy"),
            ("[jobs]\nclean_ms = '5'", "line 2: [jobs] clean_ms = '5' cannot be; give a whole number, 1 to"),
            ("[jobs]\nclean_ms = true", "clean_ms = True cannot be"),
            (
                "\n\n[server]\nmax_connections = 0",
                "line 4: [server] max_connections = 0 cannot be; give a whole number",
            ),
            ("[queues]\nquota = 0", "line 2: [queues] quota = 0 cannot be; give 1 to 2147483648"),
            ("[queues]\nstore = 'disk'", "[queues] store = 'disk' cannot be; give memory, journal or off"),
            ("[store]\npart_bytes = 1", "[store] part_bytes = 1 cannot be; give 1024 to"),
            ("[store]\nepoch_ms = 0", "lamina.toml: [store] epoch_ms = 0: no client could end an epoch"),
            ("[store]\nenabled = 1", "[store] enabled = 1 cannot be; give true or false"),
            ("[resp]\nlisten = 'here'", "[resp] listen = 'here' cannot be: 'here' is no address"),
            ("[resp]\nlisten = 'unix:'", "'unix:' is no address"),
            ("[topics]\nsegment_age_s = -1", "segment_age_s = -1 cannot be"),
            ("[topics]\nsegment_age_s = nan", "segment_age_s = nan cannot be"),
            ("[topics.retain]\na = 7", "[topics] retain = {'a': 7} cannot be; give a table"),
            ("[topics.retain]\na = 'age:1y'", "'1y' is not a duration"),
            ("jobs = 3", "jobs is no setting"),
            ("[jobs]\nsync = ", "lamina.toml, line 2: no TOML: Invalid value"),
            ("[jobs]\n[jobs]", "line 2: no TOML: Cannot declare"),
            ("[queues]\nstore='journal'\nquota=500", "quota = 500 cannot be: a file of a journal takes 256 messages"),
            ("[server]\ntls_cert = 'a'", "[server] tls_cert is set and tls_key is not; set both"),
            ("[workq]\nlisten='off'\n[resp]\nlisten='off'", "there is no door to open; leave --workq or --resp on"),
            ("data = 'lamina.toml'", "lamina.toml is a file; the data folder has to be a folder"),
        ],
    )
    def test_it_is_told_in_one_line_with_file_and_key_and_what_it_should_be(self, text: str, said: str) -> None:
        assert said in only_problem(text)

    def test_all_of_it_is_told_and_the_first_stops_the_server(self) -> None:
        found = of("[jobs]\nsynk = 1\nclean_ms = 0\n[sever]\nx = 1")
        assert len(found.problems) == 3
        with pytest.raises(BadOption, match=r'synk is no setting.*2 more: run "lamina config check"'):
            found.raise_problem()

    def test_a_file_that_is_no_text_is_told_with_the_line(self) -> None:
        Path("lamina.toml").write_bytes(b"# fine\n\xff\xfe")
        (problem,) = load(environment=NOTHING).problems
        assert problem.startswith("lamina.toml, line 2: no UTF-8 text")

    def test_brackets_without_end_are_told(self) -> None:
        assert "no TOML: brackets in brackets" in only_problem("data = " + "[" * 100_000)

    def test_a_file_of_a_million_bytes_is_none(self) -> None:
        assert "more than 1048576 bytes" in only_problem("#" * (1 << 20) + "\n")

    @pytest.mark.parametrize(
        ("around", "said"),
        [
            ({"LAMINA_JOBS_CLEAN_MS": "-5"}, "LAMINA_JOBS_CLEAN_MS: cannot be; give a whole number"),
            ({"LAMINA_SERVER_INSECURE": "maybe"}, "LAMINA_SERVER_INSECURE: cannot be; give true or false"),
            ({"LAMINA_STORE_EPOCH_MS": "soon"}, "LAMINA_STORE_EPOCH_MS: cannot be; give a number"),
        ],
    )
    def test_a_variable_that_cannot_be_is_told_by_its_name(self, around: Mapping[str, str], said: str) -> None:
        assert said in only_problem("", environment=around)

    def test_an_unknown_variable_is_a_warning(self) -> None:
        """Machines that start containers put names of their own there: LAMINA_RESP_PORT_6380_TCP, say."""
        found = load(environment={"LAMINA_JOBS_SYNK": "os", "LAMINA_PURE": "1", "LAMINA_GOLDEN": "x"})
        assert found.problems == []
        assert found.warnings == ["LAMINA_JOBS_SYNK is no setting; did you mean LAMINA_JOBS_SYNC?"]

    def test_a_flag_that_names_no_setting_says_which_there_are(self) -> None:
        problem = only_problem("", flags=(Given("queues.qota", "5", "--queue"),))
        assert problem == "--queue qota=5: no setting of queues has that name; did you mean quota?"


class TestSecrets:
    def test_they_are_told_to_be_set_and_never_what_they_are(self) -> None:
        found = of('[server]\npassword = "geheim"', environment={"LAMINA_QUEUE_PASSWORD": "geheim"})
        shown = json.dumps(as_dict(found)) + "".join(shown_value(found, each) for each in SETTINGS.values())
        assert "geheim" not in shown
        assert shown_value(found, SETTINGS["server.password"]) == "set"
        assert shown_value(load(environment=NOTHING, config="lamina.toml"), SETTINGS["queues.password"]) == "not set"
        assert "geheim" not in "".join(str(change) for change in load(environment=NOTHING).changes(found))

    def test_one_that_cannot_be_is_not_told_either(self) -> None:
        assert "12345" not in only_problem("[server]\npassword = 12345")
        assert "geheim" not in only_problem("", flags=(Given("server.password", "geheim\0", "--password"),))


class TestExample:
    def test_it_says_nothing_but_defaults_and_names_every_setting(self) -> None:
        text = example()
        assert set(tomllib.loads(text)) <= {"server", "workq", "resp", "http", "jobs", "topics", "queues", "store"}
        Path("lamina.toml").write_text(text)
        assert load(environment=NOTHING).values == Config().values
        for setting in SETTINGS.values():
            assert f"# {setting.name} = " in text or setting.key == "topics.retain"

    def test_every_line_of_it_can_be_taken_out_of_its_comment(self, tmp_path: Path) -> None:
        lines = [line.removeprefix("# ") if " = " in line else line for line in example().splitlines()]
        found = of("\n".join(lines[4:]))
        assert found.problems == []
        same = {key for key in SETTINGS if found.values[key] == SETTINGS[key].default}
        unset = {key for key, setting in SETTINGS.items() if setting.default in (None, {})}
        assert same | unset == set(SETTINGS)


def test_changes_are_told_with_both_values_and_the_order_of_rules_counts() -> None:
    one = of('[topics.retain]\na = "keep"\nb = "keep"')
    other = of('[topics.retain]\nb = "keep"\na = "keep"\n[server]\nidle_s = 9')
    assert [change.setting.key for change in one.changes(other)] == ["server.idle_s", "topics.retain"]
    assert str(one.changes(other)[0]) == "[server] idle_s 0 -> 9"
    assert one.changes(one) == []


class TestWhereOneMayNotLook:
    def test_a_folder_that_may_not_be_entered_is_an_error_with_a_next_step(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path) -> bool:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(Path, "is_file", refuse)
        with pytest.raises(DiskError, match=r"lamina.toml: cannot look for the configuration: Permission denied") as no:
            load(environment=NOTHING)
        assert no.value.hint == "check the owner and the rights of the folder"

    def test_a_command_that_may_not_use_a_file_says_so(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse(**given: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", "/srv/data")

        monkeypatch.setattr(tree.lamina, "main", refuse)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        said = capsys.readouterr().err
        assert "disk_error: /srv/data: cannot use it: Permission denied" in said and "Traceback" not in said
