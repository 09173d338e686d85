#!/bin/bash
# node.sh NAME FOLDER STATE: becomes the holder of one node's network, mount and UTS namespaces (called through unshare).
# Both nodes use the standard paths without meeting: /run is a tmpfs of their own, and what they write below /var goes
# into their folder. A fresh sysfs shows the node's own network devices, with the machine's cgroups put back on it.
set -euo pipefail
name=$1 folder=$2 state=$3
hostname "$name"
mount --make-rprivate /
mkdir -p "$folder"/{run,var,var-work,containerd,kubelet}

mount -t overlay overlay -o "lowerdir=/var,upperdir=$folder/var,workdir=$folder/var-work" /var
mkdir -p /var/lib/{containerd,kubelet} /var/log/pods
for part in containerd kubelet; do mount --bind "$folder/$part" "/var/lib/$part"; done # images cannot lie on an overlay

# Moved into place, not bound: kubelet picks any mount point of a file system, so each must be reachable.
mount -t tmpfs -o mode=755 run "$folder/run"
mkdir "$folder/run/${state#/run/}" "$folder/run/sys"
mount --bind "$state" "$folder/run/${state#/run/}"
mount -t sysfs sysfs "$folder/run/sys"
mount --rbind /sys/fs/cgroup "$folder/run/sys/fs/cgroup"
mount -n --move "$folder/run/sys" /sys
mount -n --move "$folder/run" /run
mount -t bpf bpf /sys/fs/bpf
for extra in securityfs:/sys/kernel/security tracefs:/sys/kernel/tracing; do
  mount -t "${extra%%:*}" none "${extra#*:}" || echo "no ${extra%%:*}"
done
mount --make-rshared /

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready >"$folder/ready"
exec sleep infinity
