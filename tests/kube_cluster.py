"""A real Kubernetes control plane on this machine: etcd, API server, controllers and scheduler.

What it lacks is a machine behind its nodes: a kubelet of ours says of each pod that was placed that
it is ready, and lets go of each that shall end. No container ever runs.

    python tests/kube_cluster.py BINARIES COMMAND...    # sees INFERPROOF_KUBECONFIG
"""

import contextlib
import os
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import yaml

NODES = ("node1", "node2")
GPUS_A_NODE = 1
_UP_S = 60.0
_POLL_S = 0.2


class ControlPlane:
    """One cluster of two nodes with a GPU each; `kubeconfig` is the way in."""

    def __init__(self, binaries: Path, root: Path) -> None:
        self._binaries = binaries
        self._root = root
        self.kubeconfig = root / "kubeconfig"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._keep_pods, daemon=True)

    def __enter__(self) -> "ControlPlane":
        etcd, peer, api = _free_ports(3)
        clients = f"http://127.0.0.1:{etcd}"
        self._start(
            *("etcd", "--data-dir", str(self._root / "etcd")),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
        )
        self._write_credentials(api)
        self._start_api_server(clients, api)
        _until(lambda: _is_ready(api))
        config = ("--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--port=0")
        controllers = "--controllers=deployment,replicaset,endpoint,garbagecollector,namespace"
        self._start(str(self._binaries / "kube-controller-manager"), *config, controllers)
        self._start(str(self._binaries / "kube-scheduler"), *config)
        self._add_nodes()
        self._kubelet.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._kubelet.is_alive():
            self._kubelet.join(timeout=10)
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def client(self) -> Any:
        """Return a client that may do everything."""
        from kubernetes.config import (
            new_client_from_config,  # pyright: ignore[reportUnknownVariableType]
        )
        from kubernetes.dynamic import DynamicClient

        api: Any = new_client_from_config(  # pyright: ignore[reportUnknownVariableType]
            config_file=str(self.kubeconfig)
        )
        return DynamicClient(api)

    def _write_credentials(self, port: int) -> None:
        token = secrets.token_hex(16)
        (self._root / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        key = str(self._root / "accounts.key")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        certificate = str(self._root / "certificates" / "apiserver.crt")
        server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": certificate}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def _start_api_server(self, etcd: str, port: int) -> None:
        key = str(self._root / "accounts.key")
        self._start(
            str(self._binaries / "kube-apiserver"),
            *("--etcd-servers", etcd, "--bind-address=127.0.0.1", f"--secure-port={port}"),
            *("--cert-dir", str(self._root / "certificates")),
            *("--token-auth-file", str(self._root / "tokens.csv"), "--authorization-mode=RBAC"),
            *("--service-account-issuer=https://127.0.0.1", "--service-account-key-file", key),
            *("--service-account-signing-key-file", key, "--endpoint-reconciler-type=none"),
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        )

    def _add_nodes(self) -> None:
        nodes = self.client().resources.get(api_version="v1", kind="Node")
        room = {"cpu": "16", "memory": "64Gi", "pods": "32", "nvidia.com/gpu": str(GPUS_A_NODE)}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "of a test"}
        for name in NODES:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            nodes.create(body=body)
            status = {"capacity": room, "allocatable": room, "conditions": [ready]}
            nodes.status.patch(
                name=name, body={"status": status}, content_type="application/merge-patch+json"
            )

    def _keep_pods(self) -> None:
        """Be the kubelet of all nodes: each pod that was placed is ready, or lets go at once."""
        pods = self.client().resources.get(api_version="v1", kind="Pod")
        while not self._over.wait(_POLL_S):
            for pod in pods.get(field_selector="spec.nodeName!=").to_dict()["items"]:
                where = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
                with _unless_gone():
                    if pod["metadata"].get("deletionTimestamp"):
                        pods.delete(body={"gracePeriodSeconds": 0}, **where)
                    elif pod["status"].get("phase") == "Pending":
                        ready = {"status": {"phase": "Running", "conditions": _CONDITIONS}}
                        pods.status.patch(body=ready, content_type=_MERGE, **where)

    def _start(self, *argv: str) -> None:
        with (self._root / f"{Path(argv[0]).name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )


_MERGE = "application/merge-patch+json"
_CONDITIONS = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]


@contextlib.contextmanager
def _unless_gone() -> Generator[None]:
    """Pass over that a pod went, or was changed, since it was listed."""
    from kubernetes.client.exceptions import ApiException

    try:
        yield
    except ApiException as exc:
        if exc.status not in (404, 409):  # pyright: ignore[reportUnknownMemberType]
            raise


def _is_ready(port: int) -> bool:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=trusting):
            return True
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _UP_S
    while not condition():
        assert time.monotonic() < deadline, "the control plane did not come up"
        time.sleep(_POLL_S)


def main() -> int:
    """Run a command beside a new control plane; return its exit code."""
    binaries, *command = sys.argv[1:]
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(binaries).resolve(), Path(folder)) as plane,
    ):
        asked = {
            "INFERPROOF_KUBECONFIG": str(plane.kubeconfig),
            "INFERPROOF_KUBE_GPUS_EACH": str(GPUS_A_NODE),
        }
        return subprocess.run(command, env={**os.environ, **asked}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
