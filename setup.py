"""The compiled files: two kernels of plain Python, as they are where no C compiler is found."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # the same file runs as plain Python
    extensions = []
else:
    extensions = cythonize(
        [
            Extension(
                f"unbubble.{package}.kernel",
                [f"src/unbubble/{package}/kernel.py"],
                optional=True,
                extra_compile_args=["-O3"],
            )
            for package in ("simulate", "packing")
        ],
        quiet=True,
    )

setup(ext_modules=extensions)
