# Run once by the PostgreSQL image, when the data directory is new, as the superuser.
#
# Two roles: the schema's owner, for `tenure migrate` alone, and a login for `serve` and `work`, which
# is a member of tenure_program and so can append to the ledger and change nothing in it. Their
# passwords are those of the URLs that the programs are given.

password() {
  sed -E 's|^[a-z]+://[^:]+:([^@]+)@.*$|\1|' "/run/secrets/$1"
}

psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
  --set owner="$(password migration_database_url)" \
  --set server="$(password database_url)" <<'SQL'
CREATE ROLE tenure_program NOLOGIN;
CREATE ROLE tenure_reader NOLOGIN;
CREATE ROLE tenure_owner LOGIN PASSWORD :'owner';
CREATE ROLE tenure_server LOGIN PASSWORD :'server' IN ROLE tenure_program;
CREATE DATABASE tenure OWNER tenure_owner;
ALTER DATABASE tenure SET jit = off;
REVOKE CONNECT ON DATABASE tenure FROM PUBLIC;
GRANT CONNECT ON DATABASE tenure TO tenure_owner, tenure_program, tenure_reader;
SQL
