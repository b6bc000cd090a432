"""The rules of validation of a mesh."""

from mesh.topic_policies import TopicPolicy
from mesh.validation.rule import Rule

Policy = TopicPolicy[Rule]
