"""CreateTopics 0 and 1, DeleteTopics 0, DescribeConfigs 0: administration before 2.0."""

from services.gateway.requests.older.rewriting import message_of_answer, raised, rewritten
from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.requests.topics import create_topics, delete_topics, describe_configs
from services.gateway.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from services.gateway.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from services.gateway.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

DESCRIBE_CONFIGS_VERSION = 1
DEFAULT_CONFIG = 5
"""The source of a setting with its default value (DescribeConfigsResponse.ConfigSource)."""

handle_create_topics = raised(CreateTopicsRequest, CreateTopicsResponse, 2, create_topics.handle)
handle_delete_topics = raised(DeleteTopicsRequest, DeleteTopicsResponse, 1, delete_topics.handle)


def handle_describe_configs(request: Request, mesh: MeshView) -> Plan:
    """Version 0 says whether a setting is the default, later versions say where the setting comes from."""
    asked = rewritten(request, request.decode(DescribeConfigsRequest), DESCRIBE_CONFIGS_VERSION)
    answer = yield from describe_configs.handle(asked, mesh)
    told = message_of_answer(answer, DescribeConfigsResponse, DESCRIBE_CONFIGS_VERSION)
    for result in told.results if isinstance(told, DescribeConfigsResponse) else ():
        for setting in result.configs:
            setting.is_default = setting.config_source == DEFAULT_CONFIG
    return told
