"""Makes the pictures of the documents anew: ``python docs/pictures/make.py``. What they show is a run of the moment."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
WIDTH = 118


def picture(name: str, title: str, *words: str) -> None:
    """What a command prints, as a window."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "lamina", *words]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout  # noqa: S603
    said = re.sub(r"(?:/[\w.-]+)*/(lamina-demo)", r"/tmp/\1", said)  # noqa: S108  no path of this machine
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {title}", style="bold"))
    console.print(Text.from_ansi(said.rstrip()))
    drawn = console.export_svg(title=title)
    # No picture asks another host for a font.
    drawn = re.sub(r"\s*@font-face \{.*?\n    \}", "", drawn, flags=re.DOTALL)
    (HERE / f"{name}.svg").write_text(drawn)


if __name__ == "__main__":
    picture("demo", "make run", "demo", "--no-open")
