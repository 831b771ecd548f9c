from fedat_service.coordinator.limits import Limits
from fedat_service.http.app import create_app
from loadtest.in_process import LONGEST_POLL_S


def test_clients_wait_as_long_as_the_api_allows():
    operations = [one for path in create_app(Limits()).openapi()["paths"].values() for one in path.values()]
    allowed = [
        parameter["schema"]["maximum"]
        for operation in operations
        for parameter in operation.get("parameters", ())
        if parameter["name"] == "wait"
    ]
    assert set(allowed) == {LONGEST_POLL_S}
