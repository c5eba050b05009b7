#!/bin/sh
# Create the secrets of compose.yaml in the folder `secrets`. An existing secret is kept.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets/retoma

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
# The containers read a secret under other accounts; the folder keeps out everybody else on this machine.
write() { [ -e "secrets/$1" ] || { printf '%s' "$2" >"secrets/$1"; chmod 444 "secrets/$1"; }; }

write postgres_password "$(random)"
write retoma_password "$(random)"
write retoma/RETOMA_DATABASE_URL "postgresql://retoma:$(cat secrets/retoma_password)@postgres/retoma"
# Encrypts the secrets of connections: keep a copy elsewhere, because no backup of the database contains it.
write retoma/RETOMA_CONNECTIONS_KEY "$(head -c 32 /dev/urandom | base64)"
write retoma/AWS_ACCESS_KEY_ID "$(random)"
write retoma/AWS_SECRET_ACCESS_KEY "$(random)"
write s3.json "{\"identities\": [{\"name\": \"retoma\", \"actions\": [\"Admin\"], \"credentials\": [{
  \"accessKey\": \"$(cat secrets/retoma/AWS_ACCESS_KEY_ID)\",
  \"secretKey\": \"$(cat secrets/retoma/AWS_SECRET_ACCESS_KEY)\"}]}]}"
