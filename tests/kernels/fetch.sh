# shellcheck shell=bash
# fetch.sh: Debian's kernels, and a QEMU to boot them, unpacked into the cache. Sourced by run, which sets `cache`, after
# tests/support/apt.sh.

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
		# also those that this machine has, which the plan leaves out
		mapfile -t packages < <({ awk '{ print $2 }' <<<"$plan"; printf '%s\n' busybox-static kmod; } | sort -u)
		say "unpacking QEMU: ${#packages[@]} packages"
		unpack "$tools.fresh" -t "${suites[-1]}" "${packages[@]}"
		mkdir -p "$tools.fresh/sbin"
		ln -sf ../bin/kmod "$tools.fresh/sbin/depmod"
		mv "$tools.fresh" "$tools"
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
