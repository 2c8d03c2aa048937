"""The one compiled file: the simulator's kernel, left uncompiled where no C compiler is found."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # the same file runs as plain Python
    extensions = []
else:
    extensions = cythonize(
        [
            Extension(
                "unbubble.simulate.kernel",
                ["src/unbubble/simulate/kernel.py"],
                optional=True,
                extra_compile_args=["-O3"],
            )
        ],
        quiet=True,
    )

setup(ext_modules=extensions)
