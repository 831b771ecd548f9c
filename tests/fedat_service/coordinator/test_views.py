from dataclasses import replace

from fedat_service.coordinator.views import client_view


async def test_a_client_that_was_given_up_is_lost_though_it_has_a_tier(service):
    await service.started("a")
    state = service.coordinator.state
    there = state.clients["a"]
    views = [client_view(state, one) for one in (there, replace(there, lost=True))]
    assert [(view.status, view.tier) for view in views] == [("tiered", 1), ("lost", 1)]
