"""Builds the polyline codec's C half where a compiler is; without one the NumPy half serves."""

from setuptools import Extension, setup

HEADERS = ["common", "encode", "decode", "avx2"]

setup(
    ext_modules=[
        Extension(
            "fedat_service.wire._polyline",
            sources=["fedat_service/wire/_polyline.c"],
            depends=[f"fedat_service/wire/_polyline_{name}.h" for name in HEADERS],
            # No contraction: a fused multiply-add would change aggregated bits between machines.
            extra_compile_args=["-O3", "-ffp-contract=off"],
            optional=True,
        )
    ]
)
