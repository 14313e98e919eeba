#!/usr/bin/env bash
# Starts SLURM on this machine as a cluster of one node, runs a command in it, and ends it again.
#
#   tests/studies/slurm.sh python -m pytest -m slurm tests/studies
#
# Needs the Debian packages slurm-wlm and munge, and root. All of the cluster's files are in a scratch
# folder, all of its traffic on the loopback.
set -euo pipefail

scratch=$(mktemp -d)
chmod 755 "$scratch"
host=$(hostname -s)

stop() {
  for name in slurmd slurmctld munged; do
    [[ -s $scratch/$name.pid ]] && kill "$(<"$scratch/$name.pid")" 2>/dev/null || true
  done
  while pgrep --pidfile "$scratch/slurmctld.pid" >/dev/null 2>&1; do sleep 0.2; done
  rm -rf "$scratch"
}
trap stop EXIT

dd if=/dev/urandom of="$scratch/munge.key" bs=1024 count=1 status=none
mkdir "$scratch"/{munge,state,spool}
chown -R munge "$scratch/munge.key" "$scratch/munge"
chmod 400 "$scratch/munge.key"
socket=$scratch/munge/socket
touch "$scratch/munged.pid" && chown munge "$scratch/munged.pid"
runuser -u munge -- munged --force --key-file "$scratch/munge.key" --socket "$socket" \
  --pid-file "$scratch/munged.pid" --log-file "$scratch/munge/log" --seed-file "$scratch/munge/seed"

cat >"$scratch/slurm.conf" <<CONF
ClusterName=attnlight
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$socket
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=8000 State=UNKNOWN
PartitionName=cpu Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$scratch/slurm.conf
slurmctld -f "$SLURM_CONF" -c
sleep 1
slurmd -f "$SLURM_CONF"
for _ in {1..30}; do
  [[ $(sinfo --noheader --format %t 2>/dev/null) == idle ]] && break
  sleep 1
done
sinfo
"$@"
