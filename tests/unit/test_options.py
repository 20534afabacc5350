"""Settings of a log and their limits."""

from __future__ import annotations

import dataclasses

import pytest

from lamina.errors import BadOption
from lamina.log import sync
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, OS, Level, interval

# -- sync policies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("always", ALWAYS),
        ("os", OS),
        ("interval", sync.interval(1000)),
        ("interval:500", sync.interval(500)),
        ("interval:1", sync.interval(1)),
    ],
)
def test_a_policy_is_read_from_its_name(text: str, policy: sync.Sync) -> None:
    assert sync.parse(text) == policy


@pytest.mark.parametrize(
    "text",
    ["", "never", "Always", "always ", "always\n", "os:5", "interval:", "interval:x", "interval:-1", "interval:1.5"],
    ids=ascii,
)
def test_what_is_no_policy_is_a_bad_option(text: str) -> None:
    with pytest.raises(BadOption, match="is no sync policy"):
        sync.parse(text)


def test_an_interval_of_nothing_is_a_bad_option() -> None:
    with pytest.raises(BadOption):
        sync.parse("interval:0")


def test_an_interval_of_thousands_of_digits_is_a_bad_option() -> None:
    with pytest.raises(BadOption):
        sync.parse("interval:" + "9" * 5000)


@pytest.mark.parametrize("ms", [0, -1])
def test_an_interval_is_at_least_a_millisecond(ms: int) -> None:
    with pytest.raises(BadOption):
        sync.interval(ms)


def test_an_interval_is_a_second_unless_told() -> None:
    assert sync.interval().interval_ms == 1000


def test_always_answers_when_synced() -> None:
    assert ALWAYS.level is Level.SYNCED


@pytest.mark.parametrize("policy", [OS, sync.interval()], ids=str)
def test_the_other_policies_answer_when_written(policy: sync.Sync) -> None:
    assert policy.level is Level.WRITTEN


def test_os_never_syncs_by_the_clock() -> None:
    assert OS.interval_ms is None


@pytest.mark.parametrize(("policy", "text"), [(ALWAYS, "always"), (OS, "os"), (sync.interval(500), "interval(500 ms)")])
def test_a_policy_shows_its_name(policy: sync.Sync, text: str) -> None:
    assert str(policy) == text


def test_synced_is_safer_than_written() -> None:
    assert Level.SYNCED > Level.WRITTEN


# -- the options ---------------------------------------------------------------------------------------------------


def test_a_log_is_synced_always_unless_told() -> None:
    assert LogOptions().sync is ALWAYS


def test_a_payload_may_have_64_mib_unless_told() -> None:
    assert LogOptions().max_payload == 64 * 2**20


LIMITS = {"segment_bytes": (1, 1 << 62), "max_payload": (1, 1 << 30), "gather_bytes": (1, 1 << 40)}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, limits in LIMITS.items() for value in limits])
def test_a_size_at_its_limit_is_accepted(name: str, value: int) -> None:
    assert getattr(LogOptions(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, (least, most) in LIMITS.items() for value in (least - 1, most + 1, -1)],
)
def test_a_size_outside_its_limits_is_a_bad_option(name: str, value: int) -> None:
    with pytest.raises(BadOption, match=f"{name} = {value} cannot be"):
        LogOptions(**{name: value})


def test_a_bad_size_names_the_option() -> None:
    with pytest.raises(BadOption) as caught:
        LogOptions(max_payload=0)
    assert caught.value.facts == {"option": "max_payload"}


@pytest.mark.parametrize("age", [None, 0.001, 1, 1e9])
def test_an_age_above_zero_is_accepted(age: float | None) -> None:
    assert LogOptions(segment_age_s=age).segment_age_s == age


@pytest.mark.parametrize("age", [0, -1, -0.5, float("nan")])
def test_an_age_that_is_not_above_zero_is_a_bad_option(age: float) -> None:
    with pytest.raises(BadOption, match="segment_age_s"):
        LogOptions(segment_age_s=age)


def test_options_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogOptions().max_payload = 1  # type: ignore[misc]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError):
        LogOptions(segment_size=1)  # type: ignore[call-arg]


def test_a_policy_may_be_given_as_text() -> None:
    assert LogOptions(sync="interval:500").sync == interval(500)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"sync": "bogus"}, {"sync": 5}, {"segment_bytes": "64MB"}, {"max_payload": 1.5}])
def test_a_setting_of_another_type_is_a_bad_option(wrong: dict) -> None:
    with pytest.raises(BadOption):
        LogOptions(**wrong)


@pytest.mark.parametrize("wrong", ["200", 1.5, float("nan")])
def test_an_interval_of_another_type_is_a_bad_option(wrong) -> None:
    with pytest.raises(BadOption):
        interval(wrong)
