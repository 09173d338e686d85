# shellcheck shell=bash
# images.sh: the container images of the bench and of the project, kept as archives under the hash of their inputs.
# Sourced after programs.sh, never run. There is no registry: every archive is imported into every node.

# image NAME: prints the path of one of the bench's own archives, made if it is not in the cache.
image() {
  local inputs=("$BENCH/images") words=("$1") path
  case $1 in
    coredns) words+=("$(program coredns)") ;;
    workload)
      inputs+=("$REPOSITORY/tests/truth")
      words+=("$(program calls)") ;;
  esac
  path=$CACHE/images/$1-$(contents "${inputs[@]}" | key "${words[@]}" "$(declare -f fill_image)").tar
  [[ -e $path ]] || locked "$CACHE/$1-image" make_image "$1" "$path"
  echo "$path"
}

make_image() {
  local root entrypoint
  [[ ! -e $2 ]] || return 0 # made by another, while this one waited
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
  local deb
  case $1 in
    pause) entrypoint=/pause
      gcc -Os -static -s "$BENCH/images/pause.c" -o "$2/pause" ;;
    coredns) entrypoint=/coredns
      cp "$(program coredns)" "$2/coredns" ;;
    workload) entrypoint=/bin/truth # the project's truth generator, and a shell to look around with
      mkdir -p "$2"/{bin,etc,tmp,proc,sys,dev}
      echo 'root:x:0:0::/:/bin/sh' >"$2/etc/passwd"
      echo 'hosts: files dns' >"$2/etc/nsswitch.conf"
      cp "$(program calls)" "$2/bin/calls"
      gcc -O2 -static -s -pthread -Wl,--no-warnings "$REPOSITORY/tests/truth/truth.c" -o "$2/bin/truth"
      (cd "$2/tmp" && apt-get download -qq -o APT::Sandbox::User=root busybox-static && dpkg -x busybox-static_*.deb unpacked &&
        cp unpacked/bin/busybox "$2/bin/" && rm -rf "$2"/tmp/*)
      chroot "$2" /bin/busybox --install -s /bin ;;
    servers) entrypoint=/bin/sh # real servers and Python for their clients: packages of this machine's Debian, whole but for Perl
      mkdir -p "$2"/{etc,tmp,proc,sys,dev,data,debs/partial} "$2"/usr/{bin,sbin,lib,lib64}
      ln -s usr/{bin,sbin,lib,lib64} "$2"
      # as on an empty machine, so that it names all that they depend on
      apt-get install -qq -y --download-only --no-install-recommends -o Dir::State::status=/dev/null \
        -o Dir::Cache::archives="$2/debs" -o Debug::NoLocking=1 -o APT::Sandbox::User=root \
        busybox-static redis-server mariadb-server-core python3-pymysql python3-websockets >&2
      for deb in "$2"/debs/*.deb; do
        [[ ${deb##*/} == perl* ]] || dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$2"
      done
      rm -rf "$2/debs" "$2"/var/* "$2"/usr/share/{doc,man,locale}
      echo 'root:x:0:0::/:/bin/sh' >"$2/etc/passwd"
      echo 'hosts: files dns' >"$2/etc/nsswitch.conf"
      chroot "$2" /bin/busybox --install -s /bin ;;
  esac
}

# The name under which the Dockerfile knows its base. It is made here once, by debootstrap, from the machine's own mirror, and
# has no package that Debian's own image lacks.
BASE=docker.io/library/debian:trixie-slim
BUILDER=$CACHE/buildah
REGISTRY=latencyprobe.local/latencyprobe

builder() { buildah --root "$BUILDER/storage" --runroot "$BUILDER/run" "$@"; }

base_image() {
  local made container root=$BUILDER/trixie mirror
  made=$BUILDER/base-$(declare -f base_image | key "$BASE")
  [[ ! -e $made ]] || return 0
  # shellcheck disable=SC2016 # a name of apt's own
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -1)
  say "base image: debootstrap trixie"
  rm -rf "$root" && mkdir -p "$root"
  debootstrap --variant=minbase trixie "$root" "$mirror" >"$BUILDER/debootstrap.log" 2>&1 ||
    { tail -5 "$BUILDER/debootstrap.log" >&2; fail "debootstrap failed"; }
  rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/usr/share/{doc,man,info,locale}/*
  rm "$root/var/cache/ldconfig/aux-cache" # it has times in it; all else is the same bits each time
  echo 'Acquire::https::CAInfo "/mnt/ca-certificates.crt";' >"$root/etc/apt/apt.conf.d/authorities" # see build_project
  container=$(builder from scratch)
  builder copy -q "$container" "$root" / >/dev/null
  builder commit -q --timestamp 0 "$container" "$BASE" >/dev/null
  builder rm "$container" >/dev/null
  rm -rf "$root"
  touch "$made"
}

# project_images: builds the images of both programs from this tree and brings them into the nodes; prints their tag,
# the hash of the sources. The sources are copied first: an edit meanwhile belongs to the next build.
project_images() {
  local source=$BUILDER/source tag archive
  mkdir -p "$BUILDER" "$CACHE/images"
  rm -rf "$source" && mkdir "$source"
  (cd "$REPOSITORY" && { printf '%s\n' Dockerfile .dockerignore; sed -n 's/^!//p' .dockerignore; } | xargs cp -r --parents -t "$source")
  tag=$(contents "$source" | key "$(declare -f base_image)")
  archive=$CACHE/images/project-$tag.tar
  [[ -e $archive ]] || build_project "$source" "$tag" "$archive"
  [[ ! -e $STATE/ready ]] || import_project "$tag" "$archive"
  echo "$tag"
}

# Build steps reach the package registries as this machine does: its certificates and pip settings are mounted, never baked in,
# on folders that the base has: what is mounted elsewhere leaves its folder in the image.
build_project() {
  local started=$SECONDS part log images=() home=$BUILDER/home volumes
  mkdir -p "$home/.config/pip"
  printf '[global]\ncert = /mnt/ca-certificates.crt\n' >"$home/.config/pip/pip.conf" # wins over /etc/pip.conf
  volumes=(-v /etc/ssl/certs:/mnt:ro -v "$home:/root")
  [[ ! -e /etc/pip.conf ]] || volumes+=(-v /etc/pip.conf:/etc/pip.conf:ro)
  base_image
  for part in agent operator; do
    log=$BUILDER/$part.log
    say "$part image: building (log: $log)"
    builder bud --layers --timestamp 0 --isolation chroot --network host --pull-never "${volumes[@]}" --target "$part" \
      -t "$REGISTRY/$part:$2" "$1" >"$log" 2>&1 || { tail -20 "$log" >&2; fail "the $part image could not be built, see $log"; }
    images+=("$REGISTRY/$part:$2")
  done
  archive_images "$3.part" "${images[@]}"
  mv "$3.part" "$3"
  forget_old "$CACHE/images/project"
  forget_images
  say "images built in $((SECONDS - started)) s"
}

project_version() { sed -n 's/^version = "\(.*\)"$/\1/p;T;q' "$REPOSITORY/pyproject.toml"; }

# releases FOLDER: writes there each of the project's images as an OCI archive, under the name that the chart asks for.
releases() {
  local tag part name
  tag=$(locked "$CACHE/project" project_images)
  for part in agent operator; do
    name=docker.io/latencyprobe/$part:$(project_version)
    builder tag "$REGISTRY/$part:$tag" "$name"
    archive_images "$1/latencyprobe-$part-${name##*:}.oci.tar" "$name"
    builder rmi "$name" >/dev/null # the name alone
    say "$1/latencyprobe-$part-${name##*:}.oci.tar: $name"
  done
}

# sboms FOLDER: writes there what each of the project's images holds, as CycloneDX.
sboms() {
  local tag part container root version
  tag=$(locked "$CACHE/project" project_images)
  version=$(project_version)
  for part in agent operator; do
    container=$(builder from --pull-never "$REGISTRY/$part:$tag")
    root=$(builder mount "$container")
    "$REPOSITORY/.venv/bin/python" "$REPOSITORY/scripts/sbom.py" "$root" "latencyprobe/$part" "$version" >"$1/$part.cdx.json"
    builder rm "$container" >/dev/null
    say "$1/$part.cdx.json: $(jq '.components | length' "$1/$part.cdx.json") components"
  done
}

# archive_images ARCHIVE IMAGE...: one OCI archive, in which the layers that the images share lie once.
archive_images() {
  local layout=$BUILDER/layout image
  rm -rf "$layout"
  for image in "${@:2}"; do builder push -q --disable-compression "$image" "oci:$layout:$image" >/dev/null; done
  jq '.manifests[] |= (.annotations["io.containerd.image.name"] = .annotations["org.opencontainers.image.ref.name"])' \
    "$layout/index.json" >"$layout/named.json"
  mv "$layout/named.json" "$layout/index.json"
  tar -C "$layout" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$1" .
  rm -rf "$layout"
}

# forget_images: those of the project whose archives are forgotten; layers that only they need go with them. Their own
# times say nothing: all are made at the same one.
forget_images() {
  local image
  for image in $(builder images --noheading --format '{{.Name}}:{{.Tag}}' | grep "^$REGISTRY/"); do
    [[ -e $CACHE/images/project-${image##*:}.tar ]] || builder rmi "$image" >/dev/null 2>&1 || true # the cache of a newer one
  done
}

# import_project TAG ARCHIVE: into the nodes. Builds that nobody runs any more leave them: the nodes' disks are memory.
import_project() {
  local node old used
  [[ ! -e $STATE/images/${2##*/} ]] || return 0
  import_images "$2"
  used=$(kubectl get deployments,daemonsets -A -o jsonpath='{..image}')
  for node in "${NODES[@]}"; do
    for old in $(in_node "$node" ctr -n k8s.io images ls | unused_images "bench.local/|:$1\$|^(${used// /|})\$"); do
      in_node "$node" ctr -n k8s.io images rm --sync "$old" >/dev/null
    done
  done
  find "$STATE/images" -name 'project-*' -not -name "project-$1.tar" -delete
}

# unused_images KEEP < LISTING: the references to images that no name matching KEEP refers to (each has several).
unused_images() {
  awk -v keep="$1" 'NR > 1 { digest[$1] = $3; if ($1 ~ keep) kept[$3] }
    END { for (name in digest) if (!(digest[name] in kept)) print name }'
}
