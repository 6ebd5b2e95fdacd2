#!/usr/bin/env bash
# Makes <doctest/doctest.h> available to the C++ unit tests: the system's header, else the one of
# Debian's package, unpacked under build/doctest without root.
set -euo pipefail

cd "$(dirname "$0")/../.."
root="$PWD/build/doctest"
if [[ -e /usr/include/doctest/doctest.h || -e "$root/include/doctest/doctest.h" ]]; then
  exit 0
fi

give_up() {
  echo "hplacer: the C++ unit tests need the header doctest/doctest.h" \
    "(Debian: \`apt-get install doctest-dev\`)." >&2
  exit 1
}

command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || give_up
echo "downloading Debian's package doctest-dev to build/doctest"
mkdir -p "$root/state/lists/partial" "$root/cache/archives/partial"
cd "$root"
own_apt() {
  apt-get --quiet=2 -o Dir::State="$root/state" -o Dir::State::status=/var/lib/dpkg/status \
    -o Dir::Cache="$root/cache" -o Acquire::Languages=none -o APT::Sandbox::User= "$@"
}
# The system's own package lists do where they are fresh; an own copy of them is 10 MB.
apt-get --quiet=2 -o APT::Sandbox::User= download doctest-dev 2> /dev/null ||
  { own_apt update && own_apt download doctest-dev; } || give_up
dpkg-deb --extract doctest-dev_*.deb unpacked
mv unpacked/usr/include include
rm -rf unpacked state cache doctest-dev_*.deb
