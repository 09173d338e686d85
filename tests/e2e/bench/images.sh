# shellcheck shell=bash
# images.sh: the container images of the bench and of the project, kept as archives under the hash of their inputs.
# Sourced after programs.sh, never run. There is no registry: every archive is imported into every node.

# image NAME: prints the path of one of the bench's own archives, made if it is not in the cache.
image() {
  local inputs=("$BENCH/images") words=("$1") path
  case $1 in
    coredns) words+=("$(program coredns)") ;;
    workload) inputs+=("$REPOSITORY/tests/truth") ;;
  esac
  path=$CACHE/images/$1-$(contents "${inputs[@]}" | key "${words[@]}" "$(declare -f fill_image)").tar
  [[ -e $path ]] || make_image "$1" "$path"
  echo "$path"
}

make_image() {
  local root entrypoint
  root=$(mktemp -d)
  mkdir -p "$CACHE/images"
  fill_image "$1" "$root"
  python3 "$BENCH/images/oci.py" "$root" "$2.part" "bench.local/$1:1" --entrypoint "$entrypoint"
  rm -rf "$root"
  mv "$2.part" "$2"
  forget_old "$CACHE/images/$1"
}

# fill_image NAME FOLDER: puts the image's files into the folder and sets entrypoint.
fill_image() {
  case $1 in
    pause) entrypoint=/pause
      gcc -Os -static -s "$BENCH/images/pause.c" -o "$2/pause" ;;
    coredns) entrypoint=/coredns
      cp "$(program coredns)" "$2/coredns" ;;
    workload) entrypoint=/bin/truth # the project's truth generator, and a shell to look around with
      mkdir -p "$2"/{bin,etc,tmp,proc,sys,dev}
      echo 'root:x:0:0::/:/bin/sh' >"$2/etc/passwd"
      echo 'hosts: files dns' >"$2/etc/nsswitch.conf"
      gcc -O2 -static -s -pthread -Wl,--no-warnings "$REPOSITORY/tests/truth/truth.c" -o "$2/bin/truth"
      (cd "$2/tmp" && apt-get download -qq -o APT::Sandbox::User=root busybox-static && dpkg -x busybox-static_*.deb unpacked &&
        cp unpacked/bin/busybox "$2/bin/" && rm -rf "$2"/tmp/*)
      chroot "$2" /bin/busybox --install -s /bin ;;
  esac
}

# The name under which the Dockerfile knows its base. It is made here once, by debootstrap, from the machine's own mirror.
BASE=docker.io/library/debian:trixie-slim

builder() { buildah --root "$CACHE/buildah/storage" --runroot "$CACHE/buildah/run" "$@"; }

base_image() {
  ! builder inspect --type image "$BASE" >/dev/null 2>&1 || return 0
  local root=$CACHE/buildah/trixie mirror container
  # shellcheck disable=SC2016 # a name of apt's own
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -1)
  say "base image: debootstrap trixie"
  rm -rf "$root" && mkdir -p "$root"
  debootstrap --variant=minbase --include=ca-certificates trixie "$root" "$mirror" >"$CACHE/buildah/debootstrap.log" 2>&1 ||
    { tail -5 "$CACHE/buildah/debootstrap.log" >&2; fail "debootstrap failed"; }
  container=$(builder from scratch)
  builder copy -q "$container" "$root" / >/dev/null
  builder commit -q "$container" "$BASE" >/dev/null
  builder rm "$container" >/dev/null
  rm -rf "$root"
}

# project_key: the tag of the project's images: the hash of the recipe and of all that .dockerignore lets into it.
project_key() {
  local inputs
  mapfile -t inputs < <(cd "$REPOSITORY" && { printf '%s\n' Dockerfile .dockerignore; sed -n 's/^!//p' .dockerignore; } | xargs realpath)
  contents "${inputs[@]}" | key "$BASE"
}

# project_image agent|operator: prints the path of the project's archive, built by its Dockerfile if it is not in the cache.
project_image() {
  local tag path
  tag=$(project_key)
  path=$CACHE/images/$1-$tag.tar
  [[ -e $path ]] || locked image build_project_image "$1" "$path" "latencyprobe.local/latencyprobe/$1:$tag"
  echo "$path"
}

# Build steps reach the package registries as this machine does: its certificates and pip settings are mounted, never baked in.
build_project_image() {
  [[ ! -e $2 ]] || return 0
  local started=$SECONDS log=$CACHE/images/$1.log volumes=(-v /etc/ssl/certs:/etc/ssl/certs:ro -v "$CACHE/buildah/pip:/root/.cache/pip")
  mkdir -p "$CACHE/images" "$CACHE/buildah/pip"
  [[ ! -e /etc/pip.conf ]] || volumes+=(-v /etc/pip.conf:/etc/pip.conf:ro)
  base_image
  say "$1 image: building (log: $log)"
  builder bud --layers --isolation chroot --network host --pull-never "${volumes[@]}" --target "$1" -t "$3" "$REPOSITORY" >"$log" 2>&1 ||
    { tail -20 "$log" >&2; fail "$1 image: the build failed, see $log"; }
  rm -f "$2.part"
  builder push -q "$3" "docker-archive:$2.part:$3" >>"$log" 2>&1
  mv "$2.part" "$2"
  forget_old "$CACHE/images/$1"
  say "$1 image: built in $((SECONDS - started)) s"
}
