#!/usr/bin/env bash
# Starts a real Slurm with this machine as its only node, for tests: two pretended GPUs, a partition `main` whose jobs
# can be preempted, and a partition `urgent` that preempts them. Needs root on Debian or Ubuntu. Prints SLURM_CONF.
#   export SLURM_CONF=$(tests/slurm/start.sh) && make test-slurm
set -euo pipefail
folder=${1:-${TMPDIR:-/tmp}/sliceformer-slurm}
export SLURM_CONF=$folder/slurm.conf

if SLURM_CONF=$SLURM_CONF sinfo --noheader >/dev/null 2>&1; then # it runs already
  echo "$SLURM_CONF"
  exit
fi
if ! command -v slurmctld >/dev/null; then
  apt-get update -qq >&2
  apt-get install -y -qq --no-install-recommends slurm-wlm munge >&2
fi

# munge signs the messages between Slurm's programs
if ! munge --no-input >/dev/null 2>&1; then
  mkdir -p /run/munge
  [ -s /etc/munge/munge.key ] || head -c 128 /dev/urandom >/etc/munge/munge.key
  chown -R munge: /etc/munge /run/munge /var/log/munge /var/lib/munge
  chmod 400 /etc/munge/munge.key
  setpriv --reuid munge --regid munge --clear-groups munged >&2
fi

mkdir -p "$folder"/{state,spool}
for number in 0 1; do # a device file each; no job opens them
  [ -e "$folder/gpu$number" ] || mknod "$folder/gpu$number" c 1 3
done
echo "Name=gpu File=$folder/gpu[0-1]" >"$folder/gres.conf"

node=$(hostname -s)
memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.8)}' /proc/meminfo)
cat >"$SLURM_CONF" <<CONF
ClusterName=tests
SlurmctldHost=$node
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=10
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$node CPUs=$(nproc --all) RealMemory=$memory Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=$node Default=YES DefMemPerCPU=2000 MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=$node DefMemPerCPU=100 MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
CONF

slurmctld -f "$SLURM_CONF" >&2
slurmd -f "$SLURM_CONF" >&2
for _ in $(seq 30); do
  sinfo --noheader --format %t 2>/dev/null | grep -q idle && break
  sleep 1
done
sinfo >&2
echo "$SLURM_CONF"
