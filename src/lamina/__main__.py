"""``python -m lamina`` is the ``lamina`` command."""

from lamina.cli.main import main

main()
