#!/usr/bin/env bash
# base.sh SUITE IMAGE: a minimal Debian of that suite as a container image, which trusts what this machine trusts.
set -euo pipefail
suite=$1 image=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/ca"
csplit -sz -f "$work/ca/host-" -b '%03d.crt' "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" \
  '/-----BEGIN CERTIFICATE-----/' '{*}'
mmdebstrap --quiet --variant=minbase --include=ca-certificates --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="copy-in $work/ca /usr/local/share/ca-certificates/" \
  --customize-hook='chroot "$1" update-ca-certificates >/dev/null 2>&1' \
  "$suite" - | docker import -c 'CMD ["bash"]' -c 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' \
  -c 'ENV REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt' - "$image" >/dev/null
