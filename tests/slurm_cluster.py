"""A real Slurm on this machine for tests: a controller and two nodes, each with a made-up GPU."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

NODES = ("gpu1", "gpu2")
_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
SlurmctldPort={controller_port}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,defer
ReturnToService=2
InactiveLimit=0
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MpiDefault=none
MailProg=/bin/true
{nodes}
PartitionName=gpu Nodes=gpu1,gpu2 Default=YES State=UP OverSubscribe=NO
PartitionName=cpu Nodes=gpu1,gpu2 State=UP OverSubscribe=FORCE:4
PartitionName=urgent Nodes=gpu1,gpu2 State=UP OverSubscribe=NO PriorityTier=9
"""


class Cluster:
    """One cluster; its commands find it by the environment variable SLURM_CONF."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "slurm.conf"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Cluster":
        for name in ("munge", "state", *(f"spool/{node}" for node in NODES)):
            (self.root / name).mkdir(parents=True)
        (self.root / "munge").chmod(0o755)
        self._configure()
        key = self.root / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        place = self.root / "munge"
        self._start(
            *("munged", "--force", "--foreground", f"--socket={place}/socket"),
            *(f"--key-file={key}", f"--pid-file={place}/pid", f"--log-file={place}/log"),
            *(f"--seed-file={place}/seed",),
        )
        _until(lambda: (place / "socket").exists())
        self._start("slurmctld", "-D", "-f", str(self.config))
        for node in NODES:
            self._nodes[node] = self._start("slurmd", "-D", "-N", node, "-f", str(self.config))
        _until(
            lambda: self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t").split() == ["idle"] * 2
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.run("scancel", f"--user={os.getuid()}")
        with contextlib.suppress(AssertionError):  # what is left would live on by itself
            _until(lambda: self.run("squeue", "-h").split() == [])
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def until_idle(self) -> None:
        """Return once both nodes wait for work."""
        asked = ("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t")
        _until(lambda: self.run(*asked).split() == ["idle", "idle"])

    @contextlib.contextmanager
    def down(self, node: str, *, cut_off: bool = False) -> Generator[None]:
        """Have the controller take a node for down; one that is cut off does not hear of it."""
        if cut_off:
            self._nodes[node].send_signal(signal.SIGSTOP)
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        try:
            yield
        finally:
            self._nodes[node].send_signal(signal.SIGCONT)
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def run(self, *argv: str) -> str:
        """Return what one of Slurm's commands says; nothing while it does not answer."""
        environment = {**os.environ, "SLURM_CONF": str(self.config)}
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(3)
        lines: list[str] = []
        devices: list[str] = []
        for index, node in enumerate(NODES):
            device = self.root / f"gpu-of-{node}"
            os.mknod(device, 0o20666, os.makedev(1, 3))
            devices.append(f"NodeName={node} Name=gpu File={device} Flags=nvidia_gpu_env\n")
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1{index + 1} "
                f"Port={ports[index]} CPUs=2 RealMemory=4000 Gres=gpu:1 State=UNKNOWN"
            )
        text = _CONFIG.format(
            host=host, root=self.root, controller_port=ports[2], nodes="\n".join(lines)
        )
        self.config.write_text(text)
        (self.root / "gres.conf").write_text("".join(devices))

    def _start(self, *argv: str) -> subprocess.Popen[bytes]:
        log = (self.root / f"{argv[0]}.out").open("ab")
        environment = {**os.environ, "SLURM_CONF": str(self.config)}
        with log:
            started = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd=self.root)
        self._processes.append(started)
        return started


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline, "the cluster did not come up"
        time.sleep(0.1)
