"""Build of the one compiled module.  Everything else about the package is in pyproject.toml.

The module is optional: without a C compiler the build goes on and lamina runs on its Python twin.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

speed = Extension(
    "lamina.log._speed",
    ["src/lamina/log/_speed.pyx"],
    depends=["src/lamina/log/_crc32c.h"],
    extra_compile_args=["-O3"],
)

modules = cythonize([speed], language_level=3)
for module in modules:
    module.optional = True  # cythonize forgets it

setup(ext_modules=modules)
