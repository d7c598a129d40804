"""Where engines can be deployed for users, as targets.yaml names it: names and references alone."""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import Value

Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]
ImageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9./:_-]{0,254}(@sha256:[0-9a-f]{64})?$")]
ImageDigest = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9./:_-]{0,254}@sha256:[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1, max_length=500)]


class DockerPlace(Value):
    """A Docker daemon; images are built on `base_image`, which has python3 and the libraries."""

    kind: Literal["docker"]
    url: Text = "unix:///var/run/docker.sock"
    base_image: ImageName
    is_test: bool = False


class Cluster(Value):
    """A namespace of a cluster; `image` is the engine's, by digest, from where it can be pulled."""

    kind: Literal["kubernetes"] = "kubernetes"
    namespace: Label
    image: ImageDigest
    pull_secret: Label | None = None
    kubeconfig: Text | None = None
    context: Text | None = None
    is_test: bool = False


class TrussPlace(Value):
    """Baseten: what is deployed there is rendered here and pushed by a person with an account."""

    kind: Literal["truss"]
    base_image: ImageName
    accelerator: Text | None = None
    is_test: bool = False


class ProcessPlace(Value):
    """The target itself: replicas are sandboxed processes of one job, as by the tool deploy."""

    kind: Literal["process"]
    is_test: bool = False


DeployPlace = Annotated[
    ProcessPlace | DockerPlace | Cluster | TrussPlace, Field(discriminator="kind")
]
