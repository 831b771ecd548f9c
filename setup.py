"""Builds the polyline codec's C half where a compiler is; without one the NumPy half serves."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "fedat_service.wire._polyline",
            sources=["fedat_service/wire/_polyline.c"],
            # No contraction: a fused multiply-add would change aggregated bits between machines.
            extra_compile_args=["-O3", "-ffp-contract=off"],
            optional=True,
        )
    ]
)
