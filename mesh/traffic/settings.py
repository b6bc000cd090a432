"""The settings about traffic, of a gateway and of a sidecar."""

from pydantic import BaseModel, Field, field_validator, model_validator

from mesh.connection_security import served_home_properties
from mesh.settings import AddressList
from mesh.topics import is_own_topic, is_topic_name


class TrafficSettings(BaseModel):
    """A part of their settings. Without `home_bootstrap_servers` nothing is counted."""

    home_bootstrap_servers: AddressList = Field(
        default=(), description="The home cluster, which gets the traffic reports; empty: no reports."
    )
    home_properties: dict[str, str] = Field(
        default_factory=dict,
        description="librdkafka properties for security of the home cluster; secrets as `${env:NAME}` or "
        "`${file:/path}`.",
        repr=False,
    )
    traffic_topic: str = Field(
        default="mesh.traffic",
        description="Topic of the home cluster for traffic reports, created if the topic is absent.",
    )
    traffic_interval_s: float = Field(default=10.0, ge=1, le=3600, description="Seconds between two traffic reports.")

    @field_validator("home_properties")
    @classmethod
    def _are_served(cls, properties: dict[str, str]) -> dict[str, str]:
        return served_home_properties(properties)

    @field_validator("traffic_topic")
    @classmethod
    def _is_the_meshs_own(cls, topic: str) -> str:
        return own_topic(topic, "mesh.traffic")

    @model_validator(mode="after")
    def _has_a_home(self) -> "TrafficSettings":
        for name in ("home_properties", "traffic_topic"):
            if name in self.model_fields_set and not self.home_bootstrap_servers:
                raise ValueError(f"{name} is of use with home_bootstrap_servers alone: set that too")
        return self


def own_topic(topic: str, beginning: str) -> str:
    """The topic's name; ValueError where clients could reach it through the mesh."""
    if not is_topic_name(topic) or not is_own_topic(topic):
        raise ValueError(f"{topic!r} is no topic of the mesh's own: call it {beginning}, or something that begins so")
    return topic
