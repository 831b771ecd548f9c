"""Builds the C halves where a compiler is; without one NumPy's and torch's loops serve."""

from setuptools import Extension, setup

HEADERS = ["common", "encode", "decode", "avx2"]
MACHINES = "workers/training/_machines.h"


def extension(module: str, depends: list[str]) -> Extension:
    """One C file that becomes a module, if it can be built."""
    return Extension(
        module,
        sources=[f"{module.replace('.', '/')}.c"],
        depends=depends,
        # No contraction: a fused multiply-add would change bits between machines. Nobody reads errno.
        extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno"],
        optional=True,
    )


setup(
    ext_modules=[
        extension(
            "fedat_service.wire._polyline", [f"fedat_service/wire/_polyline_{name}.h" for name in HEADERS]
        ),
        extension("workers.training._adam", [MACHINES]),
        extension("workers.training.stacked._max_pool", [MACHINES]),
        extension(
            "workers.training.stacked._pooled_convolution",
            [MACHINES, "workers/training/stacked/_window_loops.h"],
        ),
    ]
)
