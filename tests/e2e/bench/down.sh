# shellcheck shell=bash
# down.sh: ends what up.sh started and removes its traces; also after an up that was cut short. Sourced by `bench`.
# Processes are ended by their cgroup (daemons, shims and pods together), never by name.

take_down() {
  local hierarchy group name value
  group=$(unified)/$CGROUP
  if [[ -e $group ]]; then
    echo 1 >"$group/cgroup.kill"
    within "the bench's processes end" grep -q 'populated 0' "$group/cgroup.events"
  fi
  for hierarchy in $(hierarchies); do
    [[ ! -d $hierarchy/$CGROUP ]] || within "cgroups of $hierarchy" remove_cgroups "$hierarchy/$CGROUP"
  done
  for name in $(ip -br link show type veth | grep -o '^lpbench-[^@ ]*' || true) "$BRIDGE"; do
    ip link delete "$name" 2>/dev/null || true # the routes go with it
  done
  if [[ -s $STATE/sysctl.saved ]]; then
    while IFS=' =' read -r name value; do sysctl -qw "$name=$value"; done <"$STATE/sysctl.saved"
  fi
  if mountpoint -q "$STATE"; then
    rm -rf "$CACHE/last-log"
    [[ ! -e $STATE/log ]] || cp -r "$STATE/log" "$CACHE/last-log"
    umount --lazy "$STATE" # a test that still reads a log there must not keep the next cluster from coming up
  fi
  rm -rf "$STATE"
}

# remove_cgroups FOLDER: deepest first; fails while something in it still ends.
remove_cgroups() {
  find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
  [[ ! -e $1 ]]
}
