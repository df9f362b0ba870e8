# Run once by the PostgreSQL image as the superuser, when the data directory is new.
#
# Creates two logins: the schema's owner, used only by `tenure migrate`, and one for `serve` and `work`,
# a member of tenure_program, which can append to the ledger but not change it. Their passwords come from
# the programs' database URLs.

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
