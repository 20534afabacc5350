"""Settings of a server: one table of all of them, and the three places they come from.

``lamina.toml``, the environment, and the flags of ``lamina serve``: each wins over the ones before it, and every value
knows where it is from. Nothing here knows the server; ``lamina.cli`` makes what the server is given.
"""

from lamina.config.loading import Config as Config
from lamina.config.loading import Given as Given
from lamina.config.loading import load as load
from lamina.config.table import SETTINGS as SETTINGS
from lamina.config.table import Setting as Setting
