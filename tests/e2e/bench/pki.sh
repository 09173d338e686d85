#!/bin/bash
# pki.sh FOLDER API_IP NODE...: one certificate authority for the whole bench, and a kubeconfig for each who needs one.
set -euo pipefail
folder=$1 api=$2
shift 2
mkdir -p "$folder"
cd "$folder"

# certificate NAME SUBJECT USAGE [NAMES]
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -subj "$2" -out "$1.csr" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" -extfile <(
    printf 'extendedKeyUsage=%s\nkeyUsage=digitalSignature\n%s\n' "$3" "${4:+subjectAltName=$4}"
  ) 2>/dev/null
  rm "$1.csr"
}

# kubeconfig NAME SUBJECT
kubeconfig() {
  certificate "$1" "$2" clientAuth
  cat >"$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: "https://$api:6443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: bench, context: {cluster: bench, user: $1}}]
current-context: bench
YAML
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -days 30 -subj /CN=bench -out ca.crt \
  -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2>/dev/null
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out sa.key 2>/dev/null
openssl pkey -in sa.key -pubout -out sa.pub
service=kubernetes.default.svc
certificate apiserver /CN=kube-apiserver serverAuth \
  "DNS:kubernetes,DNS:kubernetes.default,DNS:$service,DNS:$service.cluster.local,IP:10.96.0.1,IP:127.0.0.1,IP:$api"
certificate kubelet-client /O=system:masters/CN=apiserver-kubelet-client clientAuth
certificate front-proxy /CN=front-proxy clientAuth
kubeconfig admin /O=system:masters/CN=admin
for component in kube-controller-manager kube-scheduler kube-proxy; do kubeconfig $component "/CN=system:$component"; done
for node in "$@"; do kubeconfig "kubelet-$node" "/O=system:nodes/CN=system:node:$node"; done
