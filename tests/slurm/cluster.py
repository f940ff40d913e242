"""A real Slurm cluster on this machine, for tests: munged, slurmctld, a slurmd a node, slurmdbd and MariaDB if asked.

    python -m tests.slurm.cluster up DIR [--nodes 4] [--gpus 8] [--accounting]
    python -m tests.slurm.cluster down DIR

Everything (keys, sockets, state, logs, database) lies in DIR and listens on the loopback interface alone, on ports that
were free, so that several clusters run beside each other. Daemons are ended by their pid files. As root, since fake
GPUs are device files. Tried with Slurm 22.05.8 (Debian 12).
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

DAEMONS = ("munged", "munge", "slurmctld", "slurmd", "sinfo")
ACCOUNTING_DAEMONS = ("slurmdbd", "mariadbd", "mariadb-install-db")
COMMANDS = ("sbatch", "srun", "salloc", "squeue", "sinfo", "scancel", "scontrol", "sacct", "sacctmgr", "sstat", "sdiag")
# Says of every process of a cluster which it belongs to, and of those that slurmd starts, on which node they are.
CLUSTER_VARIABLE = "FALLOFF_TEST_CLUSTER"
NODE_VARIABLE = "FALLOFF_TEST_NODE"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
START_S = 60.0
STOP_S = 10.0
PERIOD_S = 0.1

# Nothing of Slurm's counts all that it is asked, or fails when it is told to, so each command is wrapped: a call is
# counted, fails while faults/NAME holds a number above 0 (which it takes one from), and finds the cluster without
# SLURM_CONF, which Snakemake's slurm-jobstep plugin drops (0.6.1).
_WRAPPER = """\
#!/bin/sh
printf '%s {name} %s\\n' "$(date +%s.%N)" "$*" >> {folder}/calls.log
if left=$(cat {folder}/faults/{name} 2>/dev/null) && [ "$left" -gt 0 ]; then
  echo $((left - 1)) > {folder}/faults/{name}
  echo "{name}: error: slurm_receive_msg: Socket timed out on send/recv operation" >&2
  exit 1
fi
SLURM_CONF={folder}/etc/slurm.conf exec {path} "$@"
"""

_SLURM_CONF = """\
ClusterName=falloff
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters={communication}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state/slurmctld
SlurmdSpoolDir={folder}/state/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# no cgroups in a container: memory is looked at each second, and what exceeds it is ended
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
TopologyPlugin=topology/tree
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
MinJobAge=300
KillWait=10
MessageTimeout=30
SlurmdTimeout=30
InactiveLimit=0
MaxJobCount=50000
"""

_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
CommunicationParameters={communication}
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""

_GRANTS = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY 'slurm';
CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
"""


def why_not_here(*, accounting: bool = False) -> str | None:
    """Return the sentence that says why no cluster can be started on this machine, None where one can."""
    needed = (*DAEMONS, *(ACCOUNTING_DAEMONS if accounting else ()))
    missing = [name for name in needed if shutil.which(name, path=SYSTEM_PATH) is None]
    if missing:
        packages = "slurm-wlm munge" + (" slurmdbd mariadb-server" if accounting else "")
        return f"{', '.join(missing)} not found here; on Debian: apt-get install --no-install-recommends {packages}"
    return None if os.geteuid() == 0 else "a test cluster needs root, which makes the device files of its fake GPUs"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster in a folder: nodes node1, node2, ... of two leaf switches, with 16 CPUs and 64,000 MB each."""

    folder: Path
    num_nodes: int
    num_gpus: int
    accounting: bool
    port: int

    @property
    def nodes(self) -> list[str]:
        return [f"node{number}" for number in range(1, self.num_nodes + 1)]

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with the cluster's commands before others."""
        return {
            **os.environ,
            "SLURM_CONF": str(self.folder / "etc/slurm.conf"),
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            CLUSTER_VARIABLE: str(self.folder),
        }

    def run(self, *command: str, succeeds: bool = True) -> str:
        """Run a command of Slurm, uncounted, and return what it printed."""
        path = shutil.which(command[0], path=SYSTEM_PATH) or command[0]
        done = subprocess.run(
            [path, *command[1:]], env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert not succeeds or done.returncode == 0, f"{' '.join(command)}: {done.stderr}{self.end_of_logs()}"
        return done.stdout

    def end_of_logs(self) -> str:
        """Return the last words of each daemon."""
        logs = sorted((self.folder / "log").glob("*.log"))
        return "".join(f"\n{log.name}: ..." + log.read_text(errors="replace")[-600:] for log in logs)

    # what a test looks at and does

    def wait_for(self, is_true: Callable[[], bool], complaint: str) -> None:
        """Return once something is true; AssertionError, with the last words of the daemons, where it never is."""
        _wait(is_true, complaint, self.end_of_logs)

    def clear(self) -> None:
        """End all jobs, mend all nodes, and forget what was counted and what was to fail."""
        self.run("scancel", "--user=root", succeeds=False)
        for fault in (self.folder / "faults").iterdir():
            fault.unlink()
        for node in set(self.nodes) - self._usable_nodes():
            self.repair_node(node)
        self.wait_for(lambda: not self.run("squeue", "--noheader"), "jobs are left")
        self.forget_calls()

    def jobs(self) -> dict[int, str]:
        """Return the state of every job that the controller knows, by job id."""
        lines = self.run("squeue", "--noheader", "--states=all", "--format=%A %T").splitlines()
        return {int(job): state for job, state in map(str.split, lines)}

    def jobs_at_work(self) -> list[int]:
        """Return the jobs that run or wait to."""
        return [job for job, state in self.jobs().items() if state in ("PENDING", "RUNNING", "COMPLETING")]

    def nodes_of(self, job: int) -> list[str]:
        """Return the nodes of a job, its first one first."""
        listed = self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%N").strip()
        return self.run("scontrol", "show", "hostnames", listed).split()

    def calls(self) -> Counter[str]:
        """Return how often each command of Slurm was called through the cluster's PATH."""
        path = self.folder / "calls.log"
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        return Counter(line.split()[1] for line in lines if len(line.split()) > 1)

    def forget_calls(self) -> None:
        """Count from zero again."""
        (self.folder / "calls.log").unlink(missing_ok=True)

    def fail(self, command: str, times: int) -> None:
        """Make the next calls of a command fail as a controller does that does not answer."""
        (self.folder / "faults" / command).write_text(f"{times}\n")

    def drain(self) -> None:
        """Let no job start on any node, until they are resumed."""
        self.run("scontrol", "update", f"nodename={','.join(self.nodes)}", "state=drain", "reason=test")

    def crash_node(self, node: str) -> None:
        """Take a node down as a power cut does: its slurmd and all that it runs die, then the controller knows."""
        _end(self._processes_of(node), signal.SIGKILL)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def repair_node(self, node: str) -> None:
        """Bring a node back."""
        if not _is_alive(self._pid(f"slurmd.{node}"), "slurmd"):
            self._start_node(node)
        # unless ReturnToService has done so already
        self.run("scontrol", "update", f"nodename={node}", "state=resume", succeeds=False)
        _wait(lambda: node in self._usable_nodes(), f"{node} did not come back", self.end_of_logs)

    def processes(self) -> dict[int, str]:
        """Return the command line of every process that the cluster's jobs have started, by its id."""
        return {
            pid: _command_line(pid)
            for node in self.nodes
            for pid in self._processes_of(node)
            if _name(pid) not in ("slurmd", "slurmstepd")
        }

    def _processes_of(self, node: str) -> list[int]:
        """Return slurmd and what it has started; a job's own environment may be anything, its ancestors are not."""
        parents = _parents()
        found = {pid for pid in parents if _has_variable(pid, NODE_VARIABLE, f"{self.folder}/{node}")}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found)

    def _usable_nodes(self) -> set[str]:
        # by the state as it is printed: sinfo counts a drained node among the idle ones that it is asked for
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %t", succeeds=False).splitlines()
        return {node for node, state in map(str.split, lines) if state in ("idle", "mix", "alloc")}

    # from nothing to a cluster

    def start(self) -> None:
        """Start every daemon, and return once all nodes take jobs."""
        for name in ("bin", "etc", "faults", "log", "run", "state/slurmctld", "state/gpu"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # munge refuses a socket that not everybody can reach
        (self.folder / "cluster.json").write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))
        self._write_configuration()
        self._start_munge()
        if self.accounting:
            self._start_accounting()
        self._daemon("slurmctld")
        _wait(self._is_answering, "slurmctld did not start", self.end_of_logs)
        for node in self.nodes:
            self._start_node(node)
        _wait(lambda: self._usable_nodes() == set(self.nodes), "not all nodes came up", self.end_of_logs)

    def stop(self) -> None:
        """End all jobs and daemons, whatever state they are in."""
        if _is_alive(self._pid("slurmctld"), "slurmctld"):
            self.run("scancel", "--user=root", succeeds=False)
            with contextlib.suppress(AssertionError):
                _wait(lambda: not self.run("squeue", "-h", succeeds=False), "jobs are left", limit_s=STOP_S)
        self._end_daemon("slurmctld", "slurmctld")
        for node in self.nodes:
            _end(self._processes_of(node), signal.SIGTERM)
        for name in ("slurmdbd", "mariadbd", "munged"):
            self._end_daemon(name, name)
        _end([pid for pid in _parents() if _has_variable(pid, CLUSTER_VARIABLE, str(self.folder))], signal.SIGTERM)

    def _write_configuration(self) -> None:
        etc, host = self.folder / "etc", _host()
        names = f"node[1-{self.num_nodes}]"
        common = {"folder": self.folder, "host": host, "communication": _communication()}
        lines = [_SLURM_CONF.format(port=self.port, **common)]
        if self.accounting:
            lines.append(
                "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
                f"AccountingStoragePort={self.port + 1}\nAccountingStoragePass={self.folder}/run/munge.socket\n"
            )
            (etc / "slurmdbd.conf").touch(mode=0o600)  # slurmdbd reads no other
            ports = {"dbd_port": self.port + 1, "sql_port": self.port + 2}
            (etc / "slurmdbd.conf").write_text(_SLURMDBD_CONF.format(**ports, **common))
        else:
            lines.append("AccountingStorageType=accounting_storage/none\n")
        for number, node in enumerate(self.nodes, start=1):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 2 + number} "
                f"CPUs=16 RealMemory=64000 Gres=gpu:{self.num_gpus} State=UNKNOWN\n"
            )
        partition = f"Nodes={names} MaxTime=INFINITE DefMemPerNode=1000 State=UP"
        # a job of `urgent` takes the place of one of `main`
        lines.append(f"PartitionName=main {partition} Default=YES PriorityTier=1 GraceTime=10\n")
        lines.append(f"PartitionName=urgent {partition} PriorityTier=2 PreemptMode=OFF\n")
        (etc / "slurm.conf").write_text("".join(lines))
        (etc / "cgroup.conf").write_text("CgroupAutomount=no\n")
        # slurmd counts a GPU only where its file is a character device, and does no more with it
        for number in range(self.num_gpus):
            with contextlib.suppress(FileExistsError):
                os.mknod(self.folder / f"state/gpu/gpu{number}", 0o20666, os.makedev(1, 3))
        gpu_files = f"{self.folder}/state/gpu/gpu[0-{self.num_gpus - 1}]"
        gres = f"NodeName={names} Name=gpu File={gpu_files} Flags=nvidia_gpu_env\n" if self.num_gpus else ""
        (etc / "gres.conf").write_text(gres)
        (etc / "topology.conf").write_text(self._topology())
        for name in COMMANDS:
            wrapper = self.folder / "bin" / name
            wrapper.write_text(
                _WRAPPER.format(name=name, folder=self.folder, path=shutil.which(name, path=SYSTEM_PATH))
            )
            wrapper.chmod(0o755)
        variables = ("SLURM_CONF", "PATH", CLUSTER_VARIABLE)
        (self.folder / "env.sh").write_text("".join(f"export {v}='{self.environment[v]}'\n" for v in variables))

    def _topology(self) -> str:
        half = (self.num_nodes + 1) // 2
        leaves = [self.nodes[:half], self.nodes[half:]]
        lines = [f"SwitchName=leaf{n} Nodes={','.join(leaf)}\n" for n, leaf in enumerate(leaves, start=1) if leaf]
        return "".join(lines) + f"SwitchName=spine Switches=leaf[1-{len(lines)}]\n"

    def _start_munge(self) -> None:
        key, run = self.folder / "etc/munge.key", self.folder / "run"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self._daemon(
            "munged",
            "--force",
            "--num-threads=2",
            f"--socket={run}/munge.socket",
            f"--key-file={key}",
            f"--pid-file={run}/munged.pid",
            f"--log-file={self.folder}/log/munged.log",
            f"--seed-file={self.folder}/state/munge.seed",
        )
        _wait((run / "munge.socket").is_socket, "munged did not start", self.end_of_logs)

    def _start_node(self, node: str) -> None:
        (self.folder / "state" / node).mkdir(exist_ok=True)
        self._daemon("slurmd", "-N", node, **{NODE_VARIABLE: f"{self.folder}/{node}"})

    def _start_accounting(self) -> None:
        data, run, log = self.folder / "state/mysql", self.folder / "run", self.folder / "log"
        common = ["--no-defaults", "--user=root", f"--datadir={data}"]
        if not (data / "mysql").is_dir():
            data.mkdir()
            install = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
            self.run(*install)
        with (log / "mariadbd.log").open("ab") as output:
            subprocess.run(
                [
                    # it has no way to leave its parent by itself
                    "setsid",
                    "--fork",
                    "/usr/sbin/mariadbd",
                    *common,
                    f"--socket={run}/mysql.socket",
                    f"--pid-file={run}/mariadbd.pid",
                    "--bind-address=127.0.0.1",
                    f"--port={self.port + 2}",
                    # what slurmdbd asks for (accounting.html), at a size for tests
                    "--innodb-buffer-pool-size=128M",
                    "--innodb-log-file-size=64M",
                    "--innodb-lock-wait-timeout=900",
                ],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=True,
            )
        mariadb = ["mariadb", "--no-defaults", f"--socket={run}/mysql.socket", "--user=root"]
        _wait(lambda: bool(self.run(*mariadb, "-e", "SELECT 1", succeeds=False)), "MariaDB did not start", str)
        self.run(*mariadb, "-e", _GRANTS)
        self._daemon("slurmdbd")

        def knows_the_cluster() -> bool:
            self.run("sacctmgr", "--immediate", "add", "cluster", "falloff", succeeds=False)
            return "falloff" in self.run("sacctmgr", "--noheader", "list", "cluster", succeeds=False)

        _wait(knows_the_cluster, "slurmdbd did not start", self.end_of_logs)
        self.run("sacctmgr", "--immediate", "add", "account", "research", succeeds=False)
        self.run("sacctmgr", "--immediate", "add", "user", "root", "account=research", succeeds=False)

    def _is_answering(self) -> bool:
        return "UP" in self.run("scontrol", "ping", succeeds=False)

    def _daemon(self, name: str, *arguments: str, **variables: str) -> None:
        path = shutil.which(name, path=SYSTEM_PATH)
        assert path is not None, name
        done = subprocess.run(
            [path, *arguments],
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr.decode()}{self.end_of_logs()}"

    def _pid(self, name: str) -> int | None:
        try:
            return int((self.folder / f"run/{name}.pid").read_text())
        except (OSError, ValueError):
            return None

    def _end_daemon(self, name: str, process: str) -> None:
        pid = self._pid(name)
        # the number may be another's by now
        if pid is not None and _is_alive(pid, process):
            _end([pid], signal.SIGTERM)


def new_cluster(folder: Path, *, nodes: int = 4, gpus: int = 8, accounting: bool = False) -> Cluster:
    """Return a cluster on free ports, not started yet."""
    folder = folder.resolve()
    return Cluster(folder=folder, num_nodes=nodes, num_gpus=gpus, accounting=accounting, port=_free_ports(3 + nodes))


def read_cluster(folder: Path) -> Cluster:
    """Return the cluster that was started in a folder."""
    fields = json.loads((folder / "cluster.json").read_text())
    return Cluster(**{**fields, "folder": Path(fields["folder"])})


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _communication() -> str:
    """Return what binds daemons to the address of this host's name: the loopback one, unless a container names it."""
    try:
        is_loopback = socket.gethostbyname(_host()).startswith("127.")
    except OSError:
        is_loopback = False
    return "NoCtldInAddrAny,NoInAddrAny" if is_loopback else ""


def _free_ports(num: int) -> int:
    """Return the first of `num` neighbouring ports that nobody listens on, below those that connections take."""
    for _ in range(100):
        first = random.randrange(12000, 30000)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + num):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise ValueError("no free ports found between 12000 and 30000")


def _wait(is_true: Callable[[], bool], complaint: str, more: Callable[[], str] = str, limit_s: float = START_S) -> None:
    deadline_s = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < deadline_s, f"{complaint} within {limit_s:g} s{more()}"
        time.sleep(PERIOD_S)


def _end(pids: Sequence[int], number: signal.Signals) -> None:
    """End processes, with SIGKILL those that do not heed the first signal."""
    deadline_s = time.monotonic() + STOP_S
    living = [pid for pid in pids if pid != os.getpid()]
    while living:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > deadline_s:
            number = signal.SIGKILL
        time.sleep(PERIOD_S)
        living = [pid for pid in living if _state(pid) not in ("", "Z")]


def _is_alive(pid: int | None, name: str) -> bool:
    return pid is not None and _name(pid) == name and _state(pid) != "Z"


def _stat(pid: int) -> list[str]:
    """Return what follows the name in /proc/PID/stat: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    return (_stat(pid) or [""])[0]


def _parents() -> dict[int, int]:
    found = {int(path.name): _stat(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    return {pid: int(stat[1]) for pid, stat in found.items() if stat}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _has_variable(pid: int, name: str, value: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{name}={value}".encode() in environment.split(b"\0")


def main(arguments: Sequence[str]) -> int:
    """Start or stop a cluster by hand; return 0 where that went well."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.cluster", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--accounting", action="store_true")
    options = parser.parse_args(arguments)
    if options.action == "down":
        read_cluster(options.folder).stop()
        return 0
    if complaint := why_not_here(accounting=options.accounting):
        print(complaint, file=sys.stderr)
        return 1
    cluster = new_cluster(options.folder, nodes=options.nodes, gpus=options.gpus, accounting=options.accounting)
    cluster.start()
    print(cluster.run("sinfo", "-N", "-o", "%N %t %c %m %G"), end="")
    print(f"use it with:  . {cluster.folder}/env.sh")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
