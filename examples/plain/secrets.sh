#!/bin/sh
# Print what the plain manifests do not hold, new each time: the directory's certificate, the authority that the agents
# trust, and the pairing key. Needs openssl. Once: sh secrets.sh | kubectl create -f -
set -eu
host=latencyprobe-directory.latencyprobe.svc
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }
encoded() { openssl base64 -A; }
new_key ca.key
openssl req -x509 -new -key ca.key -subj /CN=latencyprobe-directory-ca -days 3650 -out ca.crt \
	-addext 'keyUsage=critical,keyCertSign,cRLSign' # Python believes no authority that does not say so
new_key tls.key
openssl req -new -key tls.key -subj "/CN=$host" -out tls.csr
printf '%s\n' "subjectAltName=DNS:$host" extendedKeyUsage=serverAuth keyUsage=critical,digitalSignature \
	basicConstraints=critical,CA:FALSE subjectKeyIdentifier=hash authorityKeyIdentifier=keyid >names
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile names -out tls.crt 2>/dev/null

cat <<YAML
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: latencyprobe-tls, namespace: latencyprobe}
data:
  tls.crt: $(encoded <tls.crt)
  tls.key: $(encoded <tls.key)
  ca.crt: $(encoded <ca.crt)
---
apiVersion: v1
kind: Secret
metadata: {name: latencyprobe-pair, namespace: latencyprobe}
data:
  key: $(openssl rand 32 | encoded)
---
apiVersion: v1
kind: ConfigMap
metadata: {name: latencyprobe-ca, namespace: latencyprobe-agents}
data:
  ca.crt: |
$(sed 's/^/    /' ca.crt)
YAML
