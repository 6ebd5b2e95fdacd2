#!/usr/bin/env bash
# Installs the system packages that the checks use: as root on Debian, else says what is missing.
set -euo pipefail

packages=(doctest-dev scotch chromium chromium-driver)
states=$(dpkg-query --show --showformat '${Status}\n' "${packages[@]}" 2> /dev/null || true)
if [[ $(grep -c "ok installed" <<< "$states") -eq ${#packages[@]} ]]; then
  exit 0
fi
if [[ $(id -u) -eq 0 ]] && command -v apt-get > /dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  echo "installing Debian's packages ${packages[*]}"
  if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null; then
    exit 0
  fi
fi
echo "hplacer: could not install ${packages[*]} (needs root and apt): tests that use them are skipped, and say so." >&2
