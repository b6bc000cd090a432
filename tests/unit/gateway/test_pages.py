"""The pages say what the table of handlers and the settings say."""

from services.gateway.requests.table import PAGE, with_table
from services.gateway.settings import GatewaySettings

SETTINGS_PAGE = PAGE.parent / "gateway-settings.md"


def test_the_table_of_apis_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text, "run `python -m services.gateway.requests.table`"


def test_every_setting_is_named() -> None:
    text = SETTINGS_PAGE.read_text(encoding="utf-8")
    missing = [n for n in GatewaySettings.model_fields if f"`{n.upper()}`" not in text and n != "log_level"]
    assert not missing
