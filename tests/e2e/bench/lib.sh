# shellcheck shell=bash
# lib.sh: the names, paths and small verbs that every script of the bench shares. Sourced, never run.
# shellcheck disable=SC2034 # used by those who source it
set -euo pipefail
shopt -s inherit_errexit

BENCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPOSITORY=$(cd "$BENCH/../../.." && pwd)
CACHE=${LATENCYPROBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/latencyprobe}
STATE=/run/latencyprobe-bench      # a tmpfs: etcd, images and logs touch no disk, and one umount ends them
CGROUP=latencyprobe-bench          # daemons and pods live below this folder in every hierarchy
BRIDGE=lpbench0
NETWORK=10.211.0                   # the bridge is .1, node nI is .1I; nothing is forwarded beyond this machine
POD_NETWORK=10.244                 # pods of node nI are in .I.0/24
SERVICE_CIDR=10.96.0.0/16
DNS_IP=10.96.0.10
NODES=(n1 n2)                      # n1 carries the control plane as well

mkdir -p "$CACHE"

say() { printf 'bench: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
lap() { printf 'bench: %4ds  %s\n' "$SECONDS" "$*" >&2; }

# key TEXT... < INPUTS: a short hash of the words and of standard input, the name under which a result is kept.
key() { { printf '%s\n' "$@"; cat; } | sha256sum | cut -c1-16; }

# contents PATH...: the names, modes and bytes of all source files below, in a stable order, wherever the tree lies. Of the
# mode only what git keeps, so that every clone finds what another has built.
contents() {
  local path mode name
  find "$@" -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -print | LC_ALL=C sort |
    while read -r path; do
      name=${path#"$REPOSITORY"} mode=644
      [ ! -x "$path" ] || mode=755
      printf '%s %s\n' "${name#"$1"}" "$mode"
      cat "$path"
    done
}

# locked WHAT COMMAND...: one at a time; the others wait. WHAT is the path of what the command makes, without its key.
# Daemons do not inherit the lock.
locked() (
  exec 9>"$1.lock"
  flock -n 9 || { say "waiting for another that makes $1"; flock 9; }
  "${@:2}" 9>&-
)

# forget_old NAME: keeps the three newest results of that name.
forget_old() { find "$(dirname "$1")" -maxdepth 1 -name "$(basename "$1")-*" -printf '%T@ %p\n' | sort -rn | tail -n +4 | cut -d' ' -f2- | xargs -r rm -rf; }

# within WHAT COMMAND...: polls until the command succeeds, for five minutes.
within() {
  local deadline=$((SECONDS + 300)) what=$1
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || fail "timed out: $what"
    sleep 0.1
  done
}

kubectl() { "$STATE/bin/kubectl" --kubeconfig "$STATE/kubeconfig" "$@"; }
node_ip() { echo "$NETWORK.1${1#n}"; }
# in_node NODE COMMAND...: runs inside the node's network, mount and UTS namespaces (nsenter keeps /sys, `ip netns exec` does not).
in_node() { nsenter -t "$(cat "$STATE/$1.pid")" -n -m -u "${@:2}"; }
