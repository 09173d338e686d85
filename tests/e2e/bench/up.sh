# shellcheck shell=bash
# up.sh: brings up a real Kubernetes of two nodes and a Jaeger on this one machine. Sourced by `bench`, never run.
# A node is a set of processes in its own network, mount and UTS namespaces. The nodes hang on a bridge that leads
# nowhere but to this machine: there is no forwarding and no masquerading. All processes are in one cgroup folder,
# so down.sh ends exactly those.

# What kubelets change on the machine, noted here and put back by down.sh; inotify instances run out with two of them.
SYSCTLS=(kernel.panic kernel.panic_on_oops vm.overcommit_memory vm.panic_on_oom
  fs.inotify.max_user_instances kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

hierarchies() { findmnt -rno TARGET -t cgroup,cgroup2 | grep -v "^$STATE"; }
unified() { findmnt -rno TARGET -t cgroup2 | head -1; }

# join_cgroup PART COMMAND...: becomes the command, inside a cgroup of its own. It execs, so call it with '&'.
join_cgroup() {
  mkdir -p "$(unified)/$CGROUP/$1"
  echo "$BASHPID" >"$(unified)/$CGROUP/$1/cgroup.procs"
  exec "${@:2}"
}

# daemon NODE NAME COMMAND...: starts it in the node's namespaces, with a log file. It and its pods come before what else
# the machine does: a starved etcd costs the operator its Lease.
daemon() {
  local pid
  pid=$(cat "$STATE/$1.pid")
  join_cgroup "daemons/$1" nice -n -10 nsenter -t "$pid" -n -m -u setsid "${@:3}" >"$STATE/log/$1-$2.log" 2>&1 </dev/null &
  disown
}

# configuration FILE NODE: the file from conf/ with the node's values.
configuration() {
  sed -e "s,@STATE@,$STATE,; s,@CGROUP@,$CGROUP,; s,@NAME@,$2,; s,@NODE@,$STATE/node/$2,; s,@DNS_IP@,$DNS_IP," \
    -e "s,@PODS@,$POD_NETWORK.${2#n}.0/24,; s,@CLUSTER_PODS@,$POD_NETWORK.0.0/16," "$BENCH/conf/$1"
}

bring_up() {
  local node name
  [[ $EUID == 0 ]] || fail "up needs root (namespaces, mounts, cgroups)"
  ! healthy || { import_images "$IMAGE_WORKLOAD" "$IMAGE_SERVERS"; say "already up"; return; }
  take_down # what an interrupted run may have left, or one of other sources
  mkdir -p "$STATE"
  mount -t tmpfs -o size=12g,mode=755 latencyprobe-bench "$STATE"
  mkdir -p "$STATE"/{bin,images,log,pki}
  sysctl "${SYSCTLS[@]}" >"$STATE/sysctl.saved"
  link_programs
  "$BENCH/pki.sh" "$STATE/pki" "$(node_ip n1)" "${NODES[@]}"
  cp "$STATE/pki/admin.kubeconfig" "$STATE/kubeconfig"

  sysctl -qw fs.inotify.max_user_instances=8192
  ip link add "$BRIDGE" type bridge
  ip address add "$NETWORK.1/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  ip route add "$SERVICE_CIDR" via "$(node_ip n1)" # the tests on this machine reach Services and, below, pods
  for node in "${NODES[@]}"; do make_node "$node"; done
  lap "namespaces and network"

  for node in "${NODES[@]}"; do start_runtime "$node"; done
  start_control_plane
  start_jaeger
  for node in "${NODES[@]}"; do within "containerd on $node" in_node "$node" ctr version; done
  import_images "$IMAGE_PAUSE" "$IMAGE_COREDNS" "$IMAGE_WORKLOAD" "$IMAGE_SERVERS"
  lap "containerd, images"

  within "API server" kubectl get --raw /readyz
  start_controllers
  for node in "${NODES[@]}"; do start_kubelet "$node"; done
  for node in "${NODES[@]}"; do within "node $node registers" kubectl get node "$node"; done
  lap "API server, kubelets"
  configuration coredns.yaml n1 | kubectl apply -f - >/dev/null
  kubectl wait --for=condition=Ready node --all --timeout=300s >/dev/null
  kubectl -n kube-system rollout status deployment/coredns --timeout=300s >/dev/null
  within "default service account" kubectl -n default get serviceaccount default
  within Jaeger curl -sf "http://$NETWORK.1:16686/api/services"
  fingerprint >"$STATE/ready"
  lap "ready: ${#NODES[@]} nodes, DNS, Jaeger"
}

# fingerprint: of all that a running cluster is made of, but for images, which can be brought in later.
fingerprint() { contents "$BENCH"/{conf,programs,lib.sh,node.sh,pki.sh,programs.sh,up.sh} | key; }

healthy() {
  [[ $(cat "$STATE/ready" 2>/dev/null) == "$(fingerprint)" ]] &&
    kubectl --request-timeout=5s wait --for=condition=Ready node --all --timeout=5s >/dev/null 2>&1 &&
    curl -sf -o /dev/null "http://$NETWORK.1:16686/api/services"
}

# link_programs: puts the multi-call binary under its seven names; everything comes from the cache or is compiled now.
link_programs() {
  local name
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    ln -s "$PROGRAM_KUBE" "$STATE/bin/$name"
  done
  ln -s "$PROGRAM_HELM" "$STATE/bin/helm"
  ln -s "$PROGRAM_JAEGER" "$STATE/bin/jaeger"
}

make_node() {
  local node=$1 folder=$STATE/node/$1 peer hierarchy
  mkdir -p "$folder/etc/cni"
  : >"$folder/etc/resolv.conf"
  join_cgroup "daemons/$node" unshare -n -m -u --propagation unchanged setsid "$BENCH/node.sh" "$node" "$folder" "$STATE" \
    >"$STATE/log/$node-holder.log" 2>&1 </dev/null &
  echo $! >"$STATE/$node.pid"
  disown
  within "namespaces of $node (see $STATE/log/$node-holder.log)" test -e "$folder/ready"
  ip link add "lpbench-$node" type veth peer name eth0 netns "$(cat "$STATE/$node.pid")"
  ip link set "lpbench-$node" master "$BRIDGE" up
  in_node "$node" ip address add "$(node_ip "$node")/24" dev eth0
  in_node "$node" ip link set eth0 up
  in_node "$node" ip route add default via "$NETWORK.1" # without a route a Service address is refused before its translation
  ip route add "$POD_NETWORK.${node#n}.0/24" via "$(node_ip "$node")"
  for peer in "${NODES[@]}"; do
    [[ $peer == "$node" ]] || in_node "$node" ip route add "$POD_NETWORK.${peer#n}.0/24" via "$(node_ip "$peer")"
  done
  for hierarchy in $(hierarchies); do
    mkdir -p "$hierarchy/$CGROUP/$node"
    for name in cpuset.cpus cpuset.mems; do # version 1 creates them empty, and nothing may run in an empty set
      [[ ! -e $hierarchy/$name || ! -w $hierarchy/$name ]] ||
        tee "$hierarchy/$CGROUP/$name" "$hierarchy/$CGROUP/$node/$name" <"$hierarchy/$name" >/dev/null
    done
  done
}

start_runtime() {
  local folder=$STATE/node/$1
  configuration containerd.toml "$1" >"$folder/etc/containerd.toml"
  configuration cni.json "$1" >"$folder/etc/cni/10-pods.conflist"
  daemon "$1" containerd containerd -c "$folder/etc/containerd.toml"
}

start_control_plane() {
  local pki=$STATE/pki
  daemon n1 etcd "$STATE/bin/etcd" --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
    --listen-peer-urls http://127.0.0.1:2380 --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379
  daemon n1 kube-apiserver "$STATE/bin/kube-apiserver" --advertise-address="$(node_ip n1)" --etcd-servers=http://127.0.0.1:2379 \
    --service-cluster-ip-range="$SERVICE_CIDR" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged \
    --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$pki/sa.pub" \
    --service-account-signing-key-file="$pki/sa.key" --kubelet-preferred-address-types=InternalIP \
    --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
    --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
    --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy --requestheader-username-headers=X-Remote-User \
    --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra-
}

start_controllers() {
  local pki=$STATE/pki name
  for name in kube-controller-manager kube-scheduler; do
    local config=$pki/$name.kubeconfig more=()
    [[ $name == kube-scheduler ]] || more=(--use-service-account-credentials --service-account-private-key-file="$pki/sa.key"
      --root-ca-file="$pki/ca.crt" --allocate-node-cidrs=false --node-monitor-grace-period=20s)
    daemon n1 $name "$STATE/bin/$name" --kubeconfig="$config" --authentication-kubeconfig="$config" --authorization-kubeconfig="$config" \
      --leader-elect=false --kube-api-qps=500 --kube-api-burst=1000 "${more[@]}"
  done
}

start_kubelet() {
  local folder=$STATE/node/$1
  configuration kubelet.yaml "$1" >"$folder/etc/kubelet.yaml"
  configuration kube-proxy.yaml "$1" >"$folder/etc/kube-proxy.yaml"
  daemon "$1" kubelet "$STATE/bin/kubelet" --config="$folder/etc/kubelet.yaml" --kubeconfig="$STATE/pki/kubelet-$1.kubeconfig" \
    --node-ip="$(node_ip "$1")" --hostname-override="$1"
  daemon "$1" kube-proxy "$STATE/bin/kube-proxy" --config="$folder/etc/kube-proxy.yaml"
}

# Jaeger runs on this machine, at the bridge's address: pods and tests reach it under the same name.
start_jaeger() {
  join_cgroup daemons/jaeger env OTEL_TRACES_SAMPLER=always_off \
    JAEGER_OTLP_HTTP="$NETWORK.1:4318" JAEGER_OTLP_GRPC="$NETWORK.1:4317" JAEGER_QUERY="$NETWORK.1:16686" JAEGER_QUERY_GRPC="$NETWORK.1:16685" \
    setsid "$STATE/bin/jaeger" --config "$BENCH/conf/jaeger.yaml" >"$STATE/log/jaeger.log" 2>&1 </dev/null &
  disown
}

# import_images ARCHIVE...: into every node at once, those that are not there yet.
import_images() {
  local node jobs=() job archive new=()
  for archive in "$@"; do [[ -e $STATE/images/${archive##*/} ]] || new+=("$archive"); done
  for node in "${NODES[@]}"; do
    for archive in "${new[@]}"; do in_node "$node" ctr -n k8s.io images import "$archive"; done >>"$STATE/log/$node-images.log" 2>&1 &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || { tail -qn 3 "$STATE"/log/*-images.log >&2; fail "an image could not be imported"; }; done
  for archive in "${new[@]}"; do touch "$STATE/images/${archive##*/}"; done
}
