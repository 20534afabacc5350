"""A session of Spark that is set up for lamina: ``session()``; lamina in any other session: ``register()``.

What is set in ``conf``, in a ``spark-defaults.conf`` or by ``spark-submit`` is left as it is; what is not gets the
defaults below, each of which was measured or keeps a mistake away (docs/decisions/0012-spark.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lamina.errors import BadOption, MissingExtra
from lamina.pipeline.starting import class_cache
from lamina.pipeline.starting.java import Java, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Final = {
    "spark.executor.defaultJavaOptions": "-Xss16m",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""For every master. Deep plans of many views need the stack."""
HERE: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Where everything runs on this machine: nothing listens to the network, and checkpoints are local files."""
OLDEST_SPARK: Final = (4, 1)
OLDEST_ARROW: Final = (18, 0)
_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_LOGGING: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "log4j2.properties")
_starting = Lock()
Settings = dict[str, bool | float | int | str | None]


def session(app: str = "lamina", *, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session, the running one if this process has one. The master is ``local[*]`` if nothing says otherwise.

    Stop it with ``stop()``; one that was running before is its owner's to stop (``running()`` tells).
    Raises: MissingExtra if Spark, pyarrow or Java are not there; BadOption if Spark does not start with that.
    """
    given = _checked(conf or {})
    require_spark()
    from pyspark.sql import SparkSession

    with _starting:
        if (there := running()) is not None:
            if master is not None and master != (has := there.sparkContext.master):
                raise BadOption(
                    f"this process has a session with the master {has} already, not with {master}",
                    hint="stop it first: one process has one master",
                )
            return SparkSession.builder.config(map=dict(given)).getOrCreate()
        set_before = {**_set_elsewhere(), **given}
        chosen = master or set_before.get("spark.master") or "local[*]"
        if not re.match(r"local($|\[|-cluster\[)|spark://|k8s://|yarn$", chosen):
            raise BadOption(f"{chosen!r} is no master of Spark", hint="local[*], spark://host:7077, yarn or k8s://...")
        wanted: Settings = {"spark.app.name": app, **_defaults(chosen, set_before), **given, "spark.master": chosen}
        with _environment(chosen, set_before) as java:
            if java is not None:
                wanted.update(_java_options(java, set_before))
            try:
                return SparkSession.builder.config(map=wanted).getOrCreate()
            except Exception as error:  # of Py4J, of the JVM, of pyspark: they have no root in common
                raise BadOption(
                    f"Spark did not start with the master {chosen}: {_first_line(error)}",
                    hint="check the master and the settings; what Java said is above, if it said anything",
                ) from error


def register(spark: SparkSession) -> None:
    """Make ``format("lamina")`` known to a session, also to one of Spark Connect.

    Only needed where the server that runs the session does not find ``pyspark_lamina`` by itself.
    """
    from lamina.pipeline.source import LaminaSource

    spark.dataSource.register(LaminaSource)


def running() -> SparkSession | None:
    """The session of this process; None if there is none, or Spark is not even installed."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return None
    return SparkSession.builder.getOrCreate()


def require_spark() -> None:
    """Raises: MissingExtra if Spark or pyarrow are not there, or too old."""
    hint = 'run: pip install "lamina[spark]"'
    try:
        import pyarrow
        import pyspark
    except ImportError as error:
        raise MissingExtra(
            f"Spark is asked for, and the package {error.name or error} is not installed", hint=hint, extra="spark"
        ) from error
    for name, version, oldest in (
        ("pyspark", pyspark.__version__, OLDEST_SPARK),
        ("pyarrow", pyarrow.__version__, OLDEST_ARROW),
    ):
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < oldest:
            wanted = ".".join(map(str, oldest))
            raise MissingExtra(f"{name} {version} is too old: {wanted} at least", hint=hint, extra="spark")


def is_here(master: str) -> bool:
    """Whether all of a cluster runs on this machine: it is no cluster, or its master is on the loopback."""
    if master.startswith("local"):
        return True
    host = urlsplit(master.partition(",")[0]).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


# -- settings --------------------------------------------------------------------------------------------------------


def _checked(conf: Mapping[str, str]) -> dict[str, str]:
    for name in conf:
        if not name.startswith("spark."):
            raise BadOption(f"{name!r} is no setting of Spark", hint=f"they begin with spark. (spark.{name}?)")
    if "spark.remote" in conf or "SPARK_REMOTE" in os.environ:
        raise BadOption(
            "a session of Spark Connect is made by Spark, not by lamina.pipeline.session()",
            hint="use SparkSession.builder.remote(...).getOrCreate(), and lamina.pipeline.register(spark) to read",
        )
    return {name: str(value) for name, value in conf.items()}


def _defaults(master: str, set_before: Mapping[str, str]) -> dict[str, str]:
    defaults = {**DEFAULTS, **HERE} if is_here(master) else DEFAULTS
    return {name: value for name, value in defaults.items() if name not in set_before}


def _set_elsewhere() -> dict[str, str]:
    """What the user has set for Spark outside of this program."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit, whose JVM knows all
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    found = {}
    try:
        with open(os.path.join(_conf_folder(), "spark-defaults.conf"), encoding="utf-8") as file:
            for line in file:
                if setting := re.match(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*?)\s*$", line):
                    found[setting[1]] = setting[2]
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{_conf_folder()}/spark-defaults.conf cannot be read: {error}") from error
    return found


def _conf_folder() -> str:
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(os.path.abspath(pyspark.__file__))
    return os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")


def _java_options(java: Java, set_before: Mapping[str, str]) -> dict[str, str]:
    """For the JVM that is started; what the user wants of it comes behind these options, and wins."""
    if _JAVA_OPTIONS in set_before:
        return {}
    options = ["-Xss16m", class_cache.QUIET]
    if not any(name.startswith("log4j2.") for name in _names(_conf_folder())):
        options.append(_quoted(f"-Dlog4j2.configurationFile={_LOGGING}"))
    if set_before.get(class_cache.SETTING, "true") != "false" and (classes := class_cache.of(java)) is not None:
        options.append(classes.options())
        if classes.is_to_be_made():
            class_cache.make_later()
    return {_JAVA_OPTIONS: " ".join(filter(None, options))}


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _quoted(option: str) -> str:
    return '"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"'))


@contextmanager
def _environment(master: str, set_before: Mapping[str, str]) -> Iterator[Java | None]:
    """What Spark takes from the environment, for as long as it starts. Gives the Java, None if one runs already.

    Raises: MissingExtra.
    """
    from pyspark import SparkContext

    from lamina.pipeline.starting.interpreter import for_workers

    python = set_before.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    wanted = {"PYSPARK_PYTHON": python or for_workers(is_here=master.startswith("local"))}
    if is_here(master) and "SPARK_LOCAL_IP" not in os.environ:
        wanted["SPARK_LOCAL_IP"] = HERE["spark.driver.host"]  # the name of the machine need not have an address
    java = None
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        java = find()
        wanted["JAVA_HOME"] = java.home()
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield java
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _first_line(error: Exception) -> str:
    java_error = getattr(error, "java_exception", None)
    text = str(java_error.toString() if java_error is not None else error)
    return (text.strip().splitlines() or [type(error).__name__])[0]
