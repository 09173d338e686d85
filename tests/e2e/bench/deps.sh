#!/bin/bash
# deps.sh: installs the Debian packages that the bench needs and that are missing (as root; nothing else is changed).
set -euo pipefail

packages=(
  containerd runc containernetworking-plugins # the nodes' container runtime
  nftables iptables conntrack                 # kube-proxy, host ports
  iproute2 procps util-linux openssl          # namespaces, sysctls, mounts, certificates
  buildah debootstrap                         # the project's own images
  gcc libc6-dev                               # pause, the workload generator
  curl jq
)

missing() {
  local package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

mapfile -t wanted < <(missing)
if ((${#wanted[@]})); then
  apt-get update -qq
  for _ in first second; do # a package download now and then breaks off
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null && break
  done
  mapfile -t wanted < <(missing)
fi
((${#wanted[@]} == 0)) || { echo "deps.sh: could not install: ${wanted[*]}" >&2; exit 1; }
