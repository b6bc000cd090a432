#!/usr/bin/env bash
# Makes the database cluster on the first start, as the official image does, then becomes the server.
set -euo pipefail
user=${POSTGRES_USER:-postgres}
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?POSTGRES_PASSWORD must be set}"
  initdb --username="$user" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") --auth-host=scram-sha-256 --auth-local=trust \
    --encoding=UTF8 >/dev/null
  printf 'host all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
  printf 'CREATE DATABASE "%s"\n' "${POSTGRES_DB:-$user}" | postgres --single -D "$PGDATA" template1 >/dev/null
fi
exec "$@" -c listen_addresses='*'
