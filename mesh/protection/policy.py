"""The rules of protection of a mesh."""

from mesh.protection.rule import Rule
from mesh.topic_policies import TopicPolicy

Policy = TopicPolicy[Rule]
