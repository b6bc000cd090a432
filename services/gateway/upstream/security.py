"""Checks that the gateway can connect to each cluster of a table as securely as the cluster asks for.

Otherwise the gateway refuses the table when it arrives, with the reason, rather than at the first request of a client.
Control makes the same check at registration.
"""

from mesh.connection_security import (
    MECHANISM_NAMES,
    ConnectionSecurity,
    KerberosLogin,
    UnservedSecurityError,
    connection_properties,
    credential_properties,
)
from mesh.routing import RoutingTable, UpstreamCluster
from services.gateway.upstream import kerberos


class UnservedClusterError(Exception):
    """A cluster asks for security that this gateway lacks; names the cluster, the property and what is served."""


def cluster_properties(cluster: UpstreamCluster) -> dict[str, str]:
    """The properties of every connection to the cluster."""
    return connection_properties(cluster.producer_config, cluster.consumer_config)


def security_of(cluster: UpstreamCluster) -> ConnectionSecurity:
    """Raises UnservedClusterError."""
    try:
        security = ConnectionSecurity.of(cluster_properties(cluster))
        if isinstance(security.login, KerberosLogin):
            kerberos.library()
    except UnservedSecurityError as error:
        raise UnservedClusterError(f"cluster {cluster.name!r}: {error}") from None
    except kerberos.KerberosUnavailableError as error:
        raise UnservedClusterError(f"cluster {cluster.name!r}: {MECHANISM_NAMES[0]}: {error}") from None
    return security


def check(table: RoutingTable) -> None:
    """Raises UnservedClusterError for the first cluster of the table that can't be connected to."""
    for cluster in table.clusters.values():
        security_of(cluster)
        for credential in () if cluster.identity is None else cluster.identity.credentials:
            try:
                ConnectionSecurity.of(credential_properties(cluster_properties(cluster), credential.properties))
            except UnservedSecurityError as error:
                raise UnservedClusterError(f"cluster {cluster.name!r}, credential of {credential}: {error}") from None
