# shellcheck shell=bash
# apt.sh: Debian packages of any suite, unpacked into a cache and not installed. Sourced by scripts that set `cache` and
# have `say` and `fail`.
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
