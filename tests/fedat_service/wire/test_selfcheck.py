from dataclasses import replace

import numpy as np

from fedat_service.wire import polyline, polyline_numpy
from fedat_service.wire.selfcheck import check_codec


class Off:
    """Kernels that are right but for one operation."""

    def __init__(self, name, operation):
        self.__dict__[name] = operation

    def __getattr__(self, name):
        return getattr(polyline_numpy, name)


def faults(name, operation):
    report = check_codec([replace(polyline.BACKENDS["numpy"], kernels=Off(name, operation))])
    assert report.ok is not any(finding.detail for finding in report.findings)
    return {finding.name.split(": ")[1] for finding in report.findings if not finding.ok}


def test_this_machine_passes():
    report = check_codec()
    assert report.ok
    assert report.backend == polyline.backend
    assert {finding.name.split(",")[0] for finding in report.findings} == set(polyline.BACKENDS)
    assert all(finding.ok and finding.detail == "" for finding in report.findings)


def test_half_even_rounding_is_found():
    def quantise(values, integers, factor):
        integers[:] = np.rint(values.astype(float) * factor)
        return True

    assert faults("quantise", quantise) == {"as the NumPy twin"}


def test_other_bytes_are_found():
    def encode(values, factor, lag):
        return polyline_numpy.encode(-values, factor, lag)

    assert faults("encode", encode) == {"as the polyline package", "as the NumPy twin"}


def test_multiplying_instead_of_dividing_is_found():
    def decode(payload, values, factor, lag):
        fault = polyline_numpy.decode(payload, values, 1.0, lag)
        values *= np.float32(1 / factor)
        return fault

    assert faults("decode", decode) == {"as the polyline package", "as the NumPy twin"}


def test_an_operation_that_refuses_is_a_finding_not_an_exception():
    def check(payload, count, lag):
        return "range", 3

    assert faults("check", check) == {"as the NumPy twin"}


def test_other_sums_are_found():
    def add(payload, total, weight, lag):
        return polyline_numpy.add(payload, total, weight / 2, lag)

    assert faults("add", add) == {"as the NumPy twin"}
