"""Access rules on a broker that asks for them: granted, withdrawn, and how a user logs in whom they concern.

In: a cluster, rights as the documents list them. Out: options of a client. Touches: the access rules of that cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.admin._acls import ACLFilter, ACLResourcePatternType, ResourcePatternFilter

from helpers.kafka.devbroker import PASSWORD, DevCluster
from sketchstream_connectors.kafka.cluster.topics import Right

USER = "worker"


def login(cluster: DevCluster) -> dict[str, str]:
    """Options of a client that comes as a user who may do what rules allow."""
    return {
        "bootstrap.servers": cluster.sasl_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(cluster.certificate),
    }


@contextmanager
def administrator(cluster: DevCluster) -> Iterator[KafkaAdminClient]:
    """Somebody who may do everything. All rules are gone afterwards."""
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    client.delete_acls([ACLFilter(None, "*", ACLOperation.ANY, ACLPermissionType.ANY, everything)])
    client.close()


def rule(right: Right) -> ACL:
    kind = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}.get(
        right.resource_type, ResourceType.TRANSACTIONAL_ID
    )
    pattern = ACLResourcePatternType.PREFIXED if right.pattern == "prefixed" else ACLResourcePatternType.LITERAL
    operation = ACLOperation[right.operation.upper()]
    place = ResourcePattern(kind, right.name, pattern)
    return ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, place)


def grant(admin: KafkaAdminClient, given: Iterable[Right]) -> None:
    done = admin.create_acls([rule(right) for right in given])
    assert not done["failed"], done


def withdraw(admin: KafkaAdminClient, right: Right) -> None:
    admin.delete_acls([rule(right)])
