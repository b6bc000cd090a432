"""No API is forgotten: each is served, or left out by name and with a reason."""

from services.gateway.requests.left_out import LEFT_OUT
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey


def test_every_api_is_served_or_left_out_with_a_reason() -> None:
    assert not HANDLERS.keys() & LEFT_OUT.keys()
    assert HANDLERS.keys() | LEFT_OUT.keys() == set(ApiKey)
    assert all(LEFT_OUT.values())
