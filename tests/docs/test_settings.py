"""docs/reference/options.md and the table of settings say the same, both ways."""

from __future__ import annotations

import re
from pathlib import Path

from lamina.cli.serve import serve
from lamina.config import SETTINGS
from lamina.config.showing import page_rows

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/options.md").read_text()


def test_the_table_of_the_page_is_the_table_of_settings() -> None:
    assert re.findall(r"^\| `[^`]+` \| `LAMINA_\w+` \|.*$", PAGE, re.MULTILINE) == page_rows()


def test_every_flag_of_a_setting_is_one_of_serve_and_the_other_way_round() -> None:
    flags = {option for parameter in serve.params for option in parameter.opts}
    named = {setting.flag.split()[0] for setting in SETTINGS.values()}
    assert flags == named | {"--config", "--force-restore"}, "those two are not about what holds"


def test_every_setting_has_a_variable_of_its_own() -> None:
    variables = [setting.variable for setting in SETTINGS.values()]
    assert len(set(variables)) == len(variables)
