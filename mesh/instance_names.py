"""The resource name of a consumer instance, `instances/{group}.{instance}`: no two instances share one."""

from typing import Final

INSTANCES: Final = "instances/"


def instance_name(group: str, instance: str) -> str:
    """Dots of the instance id are escaped as in URLs (RFC 3986, section 2.1), so the last dot parts group and id."""
    escaped = instance.replace("%", "%25").replace(".", "%2E")
    return f"{INSTANCES}{group}.{escaped}"
