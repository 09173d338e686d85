# shellcheck shell=bash
# fetch.sh: Debian's kernels, and a QEMU to boot them, unpacked into the cache. Sourced by run, which sets `cache`.
#
# apt works in roots of its own: this machine's sources, lists and packages stay as they are. Lists are renewed once a
# day; where they cannot be, those of the last time serve.

# apt_root STATUS SUITES...: point apt at a root of its own, which sees these suites and, as installed, what STATUS says.
apt_root() {
	local root mirror
	root=$cache/apt/$(tr ' ' + <<<"${*:2}")
	export APT_CONFIG=$root/apt.conf
	[ -z "$(find "$root/renewed" -mtime -1 2>/dev/null)" ] || return 0
	mkdir -p "$root"/{etc/sources.list.d,etc/preferences.d,state/lists/partial,cache/archives/partial}
	mirror=$(env -u APT_CONFIG apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Identifier: Packages' |
		awk '/\/debian\/? main$/ { print $1; exit }')
	[ -n "$mirror" ] || fail "apt knows no mirror of Debian: name one in /etc/apt/sources.list and run apt-get update"
	cat >"$root/etc/sources.list.d/debian.sources" <<-SOURCES
		Types: deb
		URIs: $mirror
		Suites: ${*:2}
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	SOURCES
	# The machine's own proxies stay in force. A mirror may lag behind the end of its lists' validity.
	cat >"$APT_CONFIG" <<-CONF
		Dir::State "$root/state"; Dir::State::status "$1"; Dir::Cache "$root/cache"; Dir::Etc "$root/etc";
		Dir::Etc::parts "/etc/apt/apt.conf.d"; Dir::Etc::main "/etc/apt/apt.conf"; APT::Sandbox::User "root";
		Acquire::Languages "none"; Acquire::Check-Valid-Until "false"; APT::Install-Recommends "false";
	CONF
	say "package lists of ${*:2}"
	if apt-get update -qq; then touch "$root/renewed"; else say "they cannot be renewed"; fi
}

# unpack FOLDER PACKAGES...: download packages and unpack them there, all or nothing.
unpack() {
	local fresh=$1.unpacking package
	rm -rf "$1" "$fresh"
	mkdir -p "$fresh/packages"
	(cd "$fresh/packages" && nice apt-get download -qq "${@:2}") || fail "cannot download ${*:2}"
	for package in "$fresh"/packages/*.deb; do nice dpkg-deb -x "$package" "$fresh"; done
	rm -r "$fresh/packages"
	mv "$fresh" "$1"
}

# fetch_tools: QEMU 10 (Debian 12's own 7.2 panics at random with 6.12), depmod, and a busybox for guests, to $tools.
fetch_tools() {
	local suites plan packages
	suites=("$(. /etc/os-release && echo "$VERSION_CODENAME")")
	[ "${suites[0]}" != bookworm ] || suites+=(bookworm-backports)
	apt_root /var/lib/dpkg/status "${suites[@]}"
	plan=$(apt-get -s install -t "${suites[-1]}" qemu-system-x86 busybox-static kmod | grep ^Inst) ||
		fail "no QEMU to be had from ${suites[*]}"
	tools=$cache/tools-$(sha256sum <<<"$plan" | cut -c1-16)
	[ -e "$tools" ] || {
		mapfile -t packages < <(awk '{ print $2 }' <<<"$plan")
		say "unpacking QEMU: ${#packages[@]} packages"
		unpack "$tools" -t "${suites[-1]}" "${packages[@]}"
		ln -sf ../bin/kmod "$tools/sbin/depmod"
	}
}

# fetch_kernel SUITE: its newest kernel to $kernel, named by its version, in one layout: /lib/modules/RELEASE/vmlinuz.
fetch_kernel() {
	local packages modules
	apt_root /dev/null "$1"
	kernel=$cache/linux-$(apt-cache show linux-image-amd64 | awk '/^Version: / { print $2; exit }')
	[ "$kernel" != "$cache/linux-" ] || fail "$1 has no kernel: is it a suite of Debian?"
	[ ! -e "$kernel" ] || return 0
	mapfile -t packages < <(apt-cache depends --recurse --important linux-image-amd64 | grep '^linux-' | sort -u)
	say "unpacking ${packages[*]}"
	unpack "$kernel.fresh" "${packages[@]}"
	[ -e "$kernel.fresh/lib" ] || ln -s usr/lib "$kernel.fresh/lib"
	modules=$(echo "$kernel.fresh"/lib/modules/*)
	[ -e "$modules/vmlinuz" ] || mv "$kernel.fresh/boot/vmlinuz-${modules##*/}" "$modules/vmlinuz"
	"$tools/sbin/depmod" -b "$kernel.fresh" "${modules##*/}"
	mv "$kernel.fresh" "$kernel"
}

# make_initramfs: a first root with busybox, init, and the modules of $modules that it takes to reach the host's files.
make_initramfs() (
	root=$(mktemp -d)
	trap 'rm -r "$root"' EXIT
	mkdir -p "$root"/{bin,sbin,dev,proc,sys,root,host,memory,lib/modules}
	cp "$tools/bin/busybox" "$root/bin"
	ln -s /bin/busybox "$root/sbin/modprobe"
	install -m 755 "$here/init" "$root/init"
	for name in virtio_pci 9pnet_virtio 9p overlay; do
		# modules.dep: a module and, behind the colon, what it needs, last ones first; no line if it is built in
		awk -F '[: ]+' -v name="/$name.ko" 'index($1, name) { for (i = NF; i > 0; i--) if ($i) print $i }' \
			"$modules/modules.dep"
	done | awk '!seen[$0]++' | while read -r path; do
		if [[ $path = *.xz ]]; then "$tools/bin/busybox" xzcat "$modules/$path"; else cat "$modules/$path"; fi \
			>"$root/lib/modules/$(basename "${path%.xz}")"
		basename "${path%.xz}"
	done >"$root/modules"
	cd "$root" && find . | "$tools/bin/busybox" cpio -o -H newc 2>/dev/null | gzip -1
)
