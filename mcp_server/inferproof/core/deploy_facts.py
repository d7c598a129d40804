"""What became of a deployment: an engine's replicas behind one endpoint, for whoever calls it."""

from inferproof.core.serving_facts import DeploymentFacts
from inferproof.core.values import Digest, Value


class DeployFacts(Value):
    """A deployment as it stands, or as it ended; practice only, never judged.

    `endpoint` is empty while nothing serves.
    """

    candidate_seen: Digest
    endpoint: str
    deployments: tuple[DeploymentFacts, ...]
