#!/bin/sh
# Runs once in the container of PostgreSQL, when its data folder is created: the role of Retoma is not a superuser.
set -eu
psql --no-psqlrc --set ON_ERROR_STOP=1 --set password="$(cat /run/secrets/retoma_password)" --username "$POSTGRES_USER" <<'SQL'
create role retoma login password :'password';
create database retoma owner retoma;
SQL
