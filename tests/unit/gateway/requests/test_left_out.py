"""No API is forgotten: each is served, or left out by name and with a reason."""

from services.gateway.requests.left_out import LEFT_OUT
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey

SOON = {27, 65, 66, 68, 71, 72, 75, 76, 78, 79, 88, 90, 91, 92}


def test_every_api_is_served_or_left_out_with_a_reason() -> None:
    assert not HANDLERS.keys() & LEFT_OUT.keys()
    assert set(ApiKey) - HANDLERS.keys() - LEFT_OUT.keys() <= SOON
    assert all(LEFT_OUT.values())
